"""The command line of DLBS' pytorch_benchmarks, and the lines that its log parsers read."""
