"""Five tours of mxamp, from a model to a report file: scripts to read, to run, and to start from.

    make tours                                all that this Python can
    python -m tours migration -o FOLDER       one of them

Each uses mxamp as a user would, on the command line and in Python, with a model that comes with the code,
and ends in one HTML file. They run from a checkout and from an installed wheel alike.
"""
