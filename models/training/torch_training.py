"""The training loop and the export that the PyTorch models here share."""

import numpy
import torch


def train(model, images, labels, epochs, learning_rate=2e-3, batch=64):
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=epochs * ((len(images) + batch - 1) // batch)
    )
    inputs, targets = torch.tensor(images), torch.tensor(labels)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(batch):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    return model


def accuracy(model, images, labels):
    with torch.no_grad():
        predicted = model(torch.tensor(images)).argmax(dim=1).numpy()
    return float(numpy.mean(predicted == labels))


def export(model, example, path, input_name, output_name):
    torch.onnx.export(
        model,
        (torch.tensor(example),),
        path,
        input_names=[input_name],
        output_names=[output_name],
        dynamic_axes={input_name: {0: "batch"}, output_name: {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
