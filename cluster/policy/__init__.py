"""From the engines' counters to a depth for each batch size. `depth_policy` is the place to start reading.

Pure: it needs numpy and the messages, and it knows no clock, no Ray and no SGLang.
"""
