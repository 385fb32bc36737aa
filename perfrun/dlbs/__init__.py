"""DLBS' pytorch_benchmarks: its command line, and the lines that its log parsers read."""
