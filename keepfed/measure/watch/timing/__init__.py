"""Time the loops of this process, and write down what each iteration and fetch cost."""
