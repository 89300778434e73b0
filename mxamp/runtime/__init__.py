"""The one door to MXNet: nothing outside this folder imports it."""
