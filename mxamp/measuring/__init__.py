"""What measuring takes, whatever is measured: turns and ratios, processes of their own, and this machine."""
