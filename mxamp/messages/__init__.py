"""What messages tell the user: what an argument is called where it was given, how to install something."""
