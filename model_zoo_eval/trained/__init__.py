"""Networks of GluonCV's zoo trained here, small enough to be committed, and the program that trains them."""
