"""`python -m contrada`: the command `contrada`, with this interpreter."""

from contrada_command import main

if __name__ == "__main__":
    main()
