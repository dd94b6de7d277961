"""``python -m roquet`` does what the ``roquet`` command does."""

from roquet.cli.main import main

if __name__ == "__main__":
    main()
