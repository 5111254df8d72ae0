"""Language models with made-up weights as transformers saves them, and OpenAI's client; for test_language_models.

language_models.py make FOLDER    one of each family, with cases.json: what transformers' generate() writes, the likeliest
language_models.py ask URL MODEL  what OpenAI's client gets for the cases on the standard input, as JSON
"""

import concurrent.futures
import glob
import json
import os
import sys

PROMPTS = ["Once upon", "import os\nfor x in range(10):", "The cat, which nobody had seen for weeks, sat on the roof", "déjà vu 你好"]
TALKS = [[{"role": "user", "content": "Why is the sky blue?"}],
         [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"},
          {"role": "user", "content": "And 3?"}]]
CHAT = """{{- bos_token }}{% for message in messages %}
{{- '<|' + message['role'] + '|>\\n' + message['content'] | trim + eos_token + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"""
TOKENS = 24


def families():
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    shared = {"attn_implementation": "eager", "initializer_range": 0.3, "vocab_size": 1000}
    rotary = {**shared, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
              "intermediate_size": 128, "max_position_embeddings": 256}
    return {"gpt2": (GPT2LMHeadModel, GPT2Config(n_embd=64, n_layer=3, n_head=4, n_positions=256, **shared)),
            "llama": (LlamaForCausalLM, LlamaConfig(**rotary)), "qwen2": (Qwen2ForCausalLM, Qwen2Config(**rotary))}


def make_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.train(sorted(glob.glob(os.path.dirname(json.__file__) + "/../*.py"))[:60], trainers.BpeTrainer(
        vocab_size=1000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "</s>"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    tokenizer.chat_template = CHAT
    return tokenizer


def export(model, path):
    import torch
    from transformers.cache_utils import DynamicCache

    config = model.config
    layers, heads = config.num_hidden_layers, getattr(config, "num_key_value_heads", config.num_attention_heads)
    width = config.hidden_size // config.num_attention_heads

    class Writer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask, positions, *past):
            cache = DynamicCache()
            for i in range(layers):
                cache.update(past[2 * i], past[2 * i + 1], i)
            before, tokens = past[0].shape[2], ids.shape[1]
            places = torch.arange(before + tokens)
            seen = (places[None, :] <= places[before:, None])[None, None] & mask[:, None, None, :].bool()
            out = self.model(input_ids=ids, attention_mask=torch.where(seen, 0.0, -1e9), past_key_values=cache, use_cache=True,
                             position_ids=positions)
            return (out.logits, *(tensor for layer in out.past_key_values.layers for tensor in (layer.keys, layer.values)))

    kinds = [f"{i}.{kind}" for i in range(layers) for kind in ("key", "value")]
    past = [torch.randn(2, heads, 5, width) for _ in kinds]
    names = ["input_ids", "attention_mask", "position_ids"]
    axes = {name: {0: "batch", 1: "total" if name == "attention_mask" else "tokens"} for name in (*names, "logits")}
    axes.update({f"past_key_values.{kind}": {0: "batch", 2: "past"} for kind in kinds})
    axes.update({f"present.{kind}": {0: "batch", 2: "total_out"} for kind in kinds})
    ids = torch.ones(2, 3, dtype=torch.long)
    with torch.no_grad():
        torch.onnx.export(
            Writer(), (ids, torch.ones(2, 8, dtype=torch.long), torch.arange(5, 8)[None].repeat(2, 1), *past), path,
            input_names=names + [f"past_key_values.{kind}" for kind in kinds],
            output_names=["logits"] + [f"present.{kind}" for kind in kinds], dynamic_axes=axes, opset_version=17, dynamo=False)


def make(folder):
    import torch

    tokenizer = make_tokenizer()
    for name, (kind, config) in families().items():
        torch.manual_seed(0)
        model = kind(config).eval()
        model.generation_config.update(eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.bos_token_id,
                                       pad_token_id=tokenizer.pad_token_id)
        target = f"{folder}/{name}"
        os.makedirs(target)
        tokenizer.save_pretrained(target)
        config.save_pretrained(target)
        model.generation_config.save_pretrained(target)

        def write(ids):
            rows = torch.tensor([ids])
            with torch.no_grad():
                out = model.generate(rows, attention_mask=torch.ones_like(rows), do_sample=False, max_new_tokens=TOKENS)
            return tokenizer.decode(out[0, len(ids):], skip_special_tokens=True)

        def score(text):
            """How likely each token of a text was, but for the first one."""
            ids = torch.tensor([tokenizer(text).input_ids])
            with torch.no_grad():
                scores = torch.log_softmax(model(ids).logits[0].double(), -1)
            return [scores[i, token].item() for i, token in enumerate(ids[0, 1:])]

        def of_talk(talk):
            return tokenizer.encode(tokenizer.apply_chat_template(talk, add_generation_prompt=True, tokenize=False),
                                    add_special_tokens=False)

        with open(f"{target}/cases.json", "w") as out:
            json.dump({"prompts": PROMPTS, "written": [write(tokenizer(prompt).input_ids) for prompt in PROMPTS], "talks": TALKS,
                       "scores": [score(prompt) for prompt in PROMPTS], "answers": [write(of_talk(talk)) for talk in TALKS],
                       "talk_tokens": [len(of_talk(talk)) for talk in TALKS]}, out)
        export(model, f"{target}/model.onnx")  # which leaves a GPT-2 that computes something else


def ask(url, model, cases):
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    options = {"model": model, "max_tokens": TOKENS, "temperature": 0}

    def streamed(prompt):
        return "".join(piece.choices[0].text for piece in client.completions.create(prompt=prompt, stream=True, **options))

    def streamed_talk(talk):
        pieces = client.chat.completions.create(messages=talk, stream=True, stream_options={"include_usage": True}, **options)
        return "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)

    def scored(prompt):
        choice = client.completions.create(prompt=prompt, logprobs=2, echo=True, **{**options, "max_tokens": 0}).choices[0]
        return choice.text, choice.logprobs.token_logprobs, [max(top.values()) for top in choice.logprobs.top_logprobs[1:]]

    def scored_talk(talk):
        choice = client.chat.completions.create(messages=talk, logprobs=True, top_logprobs=2, **options).choices[0]
        return [(one.bytes, one.logprob, one.top_logprobs[0].logprob) for one in choice.logprobs.content]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        written = pool.map(lambda prompt: client.completions.create(prompt=prompt, **options).choices[0].text, cases["prompts"])
        in_pieces = pool.map(streamed, cases["prompts"])
        talks = list(pool.map(lambda talk: client.chat.completions.create(messages=talk, **options), cases["talks"]))
        scores, talk_scores = pool.map(scored, cases["prompts"]), pool.map(scored_talk, cases["talks"])
        talks_in_pieces = pool.map(streamed_talk, cases["talks"])
        answer = {
            "models": [one.id for one in client.models.list()], "written": list(written), "in_pieces": list(in_pieces),
            "at_once": [one.text for one in client.completions.create(prompt=cases["prompts"], **options).choices],
            "scores": list(scores), "talk_scores": list(talk_scores), "answers": [talk.choices[0].message.content for talk in talks], "answers_in_pieces": list(talks_in_pieces),
            "talk_tokens": [talk.usage.prompt_tokens for talk in talks]}
    try:
        client.completions.create(prompt="a" * 5000, **options)
    except openai.BadRequestError as error:
        answer["failure"] = error.body["message"]
    return answer


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        print(json.dumps(ask(sys.argv[2], sys.argv[3], json.load(sys.stdin))))
