"""Encoders with made-up weights as sentence-transformers saves them, and OpenAI's client; for test_sentence_transformers.

sentence_encoders.py make FOLDER    an encoder for each way of pooling, with texts.json and expected.npy
sentence_encoders.py ask URL MODEL  vectors of the texts in texts.json on the standard input, as JSON
"""

import glob
import json
import os
import sys

TEXTS = ["What a day!", "Never again.", "import os\nfor x in range(10): print(x)" * 6, "", "déjà vu 你好"]


def make(folder):
    import numpy
    import torch
    import sentence_transformers
    from sentence_transformers import models
    from tokenizers import Tokenizer, models as subwords, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = Tokenizer(subwords.WordPiece(unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words.train(sorted(glob.glob(os.path.dirname(json.__file__) + "/../*.py"))[:60],
                trainers.WordPieceTrainer(vocab_size=3000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"]))
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
                                        sep_token="[SEP]", model_max_length=64)
    torch.manual_seed(0)
    bert = BertModel(BertConfig(vocab_size=words.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                intermediate_size=128, max_position_embeddings=64)).eval()
    bert.save_pretrained(f"{folder}/bert")
    tokenizer.save_pretrained(f"{folder}/bert")

    class Vectors(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = bert

        def forward(self, ids, mask, types):
            return self.bert(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    row = torch.ones(2, 7, dtype=torch.long)
    for pooling in ("mean", "cls", "lasttoken"):
        model = sentence_transformers.SentenceTransformer(device="cpu", modules=[
            models.Transformer(f"{folder}/bert", max_seq_length=32), models.Pooling(64, pooling_mode=pooling), models.Normalize()])
        model.save(f"{folder}/{pooling}")
        torch.onnx.export(Vectors(), (row, row, row), f"{folder}/{pooling}/model.onnx", input_names=names,
                          output_names=["last_hidden_state"], opset_version=17, dynamo=False,
                          dynamic_axes={name: {0: "batch", 1: "tokens"} for name in [*names, "last_hidden_state"]})
        numpy.save(f"{folder}/{pooling}/expected.npy", model.encode(TEXTS))
        with open(f"{folder}/{pooling}/texts.json", "w") as file:
            json.dump(TEXTS, file)


def ask(url, model):
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    answer = client.embeddings.create(model=model, input=json.load(sys.stdin))
    try:
        client.embeddings.create(model="no_such_model", input="a")
        failure = ""
    except openai.NotFoundError as error:
        failure = str(error)
    print(json.dumps({"vectors": [entry.embedding for entry in answer.data], "tokens": answer.usage.prompt_tokens, "failure": failure}))


if __name__ == "__main__":
    {"make": make, "ask": ask}[sys.argv[1]](*sys.argv[2:])
