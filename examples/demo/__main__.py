"""`python -m examples.demo`: the demo of `run.py`.

Its libraries take a second to load. Before that nothing needs an orderly end, so Ctrl-C just ends
it.
"""

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from examples.demo.run import main
    except ModuleNotFoundError as error:
        remedy = "pip install 'contrada[spark,examples]', or: make demo"
        raise SystemExit(f"demo: error: {error.name} is missing: {remedy}") from None
    main()
