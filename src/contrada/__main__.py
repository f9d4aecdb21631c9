"""`python -m contrada`: the command `contrada`, with this interpreter."""

from contrada.cli import main

if __name__ == "__main__":
    main(prog_name="contrada")
