"""The sizes of the GPTs of networks.c: "gpt2" is GPT-2 124M."""
import collections

Size = collections.namedtuple("Size", "vocabulary length width heads layers samples dtype")
GPTS = {
    "gpt": Size(1024, 64, 256, 8, 4, 8, "float32"),
    "gpt2": Size(50257, 1024, 768, 12, 12, 8, "bfloat16"),
    "gpt2_small": Size(512, 32, 64, 4, 2, 4, "bfloat16"),
}

