"""The steps in a function, analysed on the ground that is asked for, and their plans."""
