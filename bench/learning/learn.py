# SPDX-License-Identifier: Apache-2.0
"""Two tasks of image classification that a CPU learns in seconds, and the training of many ranks in one process.

The ranks are slices of one global batch. For the network, only batch normalisation differs: each rank's slice is
normalised by itself, as DDP does it, and evaluation uses the buffers of rank 0.
"""
import dataclasses
import pathlib

import numpy
import torch
from torch import nn

FONTS = pathlib.Path("/usr/share/fonts/truetype")
# Faces of the packages fonts-dejavu-core, fonts-dejavu-extra and fonts-liberation.
FACES = [f"dejavu/DejaVu{name}.ttf" for name in (
    "Sans", "Sans-Bold", "Sans-BoldOblique", "Sans-ExtraLight", "Sans-Oblique", "SansCondensed", "SansCondensed-Bold",
    "SansCondensed-BoldOblique", "SansCondensed-Oblique", "SansMono", "SansMono-Bold", "SansMono-BoldOblique", "SansMono-Oblique", "Serif",
    "Serif-Bold", "Serif-BoldItalic", "Serif-Italic", "SerifCondensed", "SerifCondensed-Bold", "SerifCondensed-BoldItalic",
    "SerifCondensed-Italic")] + [f"liberation/Liberation{family}-{style}.ttf" for family in ("Mono", "Sans", "Serif")
                                 for style in ("Regular", "Bold", "Italic", "BoldItalic")]
# Characters that do not look like another one in most faces.
CHARACTERS = "0123456789ABDEFGHJKLMNPQRTUYabcdefghijkmnqrtuyαβγδεζηθλμξπσφψωΓΔΘΛΞΠΣΦΨΩБДЖИЛЦЧШЭЮЯЪбджйлцчшэюя&@%$?!#"
GLYPH = 32  # side length of a drawn character, in pixels
SIDE = 16   # as learnt
N_TRAIN, N_TEST = 51200, 10000
NOISE = 0.1


@dataclasses.dataclass
class Task:
    """A task to learn, and the job that learns it: nodes of equally many ranks."""
    name: str
    train: tuple  # images, labels
    test: tuple
    chunk_samples: int
    nodes: int
    ranks: int
    batch: int  # batch size of a rank
    epochs: int
    rate: float
    width: int

    @property
    def classes(self):
        return int(self.train[1].max()) + 1


def digits_stored():
    """Returns scikit-learn's 1,797 digits in a fixed shuffled order: 8 x 8 pixels of 0 to 16, and labels."""
    from sklearn.datasets import load_digits  # pylint: disable=import-outside-toplevel

    found = load_digits()
    order = numpy.random.default_rng(0).permutation(len(found.target))
    return found.images[order].astype(numpy.uint8), found.target[order]


def digits():
    images, labels = digits_stored()
    tensors = torch.from_numpy(images)[:, None].float() / 16, torch.from_numpy(labels)
    n_test = len(labels) // 5
    return Task("digits", tuple(t[n_test:] for t in tensors), tuple(t[:n_test] for t in tensors), chunk_samples=20, nodes=2, ranks=8, batch=8,
                epochs=12, rate=0.1, width=16)


def missing_faces():
    return [face for face in FACES if not (FONTS / face).exists()]


def draw_glyphs():
    """Returns [faces, characters, GLYPH, GLYPH] of 0 to 1: each character in each face, in the middle of its image."""
    from PIL import Image, ImageDraw, ImageFont  # pylint: disable=import-outside-toplevel

    glyphs = numpy.zeros((len(FACES), len(CHARACTERS), GLYPH, GLYPH), numpy.float32)
    for face, path in enumerate(FACES):
        font = ImageFont.truetype(str(FONTS / path), 24)
        for i, character in enumerate(CHARACTERS):
            image = Image.new("L", (GLYPH, GLYPH))
            ImageDraw.Draw(image).text((GLYPH / 2, GLYPH / 2), character, fill=255, font=font, anchor="mm")
            glyphs[face, i] = numpy.asarray(image, numpy.float32) / 255
    return torch.from_numpy(glyphs)


def disfigured(glyphs, generator):
    """[n, GLYPH, GLYPH] -> [n, 1, SIDE, SIDE]: turns, shears, scales, moves and fades each image at random, and adds noise."""
    def draw(low, high):
        return torch.rand(len(glyphs), generator=generator) * (high - low) + low

    angle, shear, wide, high = draw(-0.15, 0.15), draw(-0.15, 0.15), draw(0.6, 0.85), draw(0.6, 0.85)
    rows = [angle.cos() * wide, (shear - angle.sin()) * high, draw(-0.1, 0.1), angle.sin() * wide, angle.cos() * high, draw(-0.1, 0.1)]
    grid = nn.functional.affine_grid(torch.stack(rows, 1).view(-1, 2, 3), (len(glyphs), 1, SIDE, SIDE), align_corners=False)
    images = nn.functional.grid_sample(glyphs[:, None], grid, align_corners=False) * draw(0.5, 1)[:, None, None, None]
    return images + NOISE * torch.randn(images.shape, generator=generator)


def characters():
    generator, glyphs = torch.Generator().manual_seed(0), draw_glyphs()
    n = N_TRAIN + N_TEST
    labels = torch.randint(len(CHARACTERS), (n,), generator=generator)
    faces = torch.randint(len(FACES), (n,), generator=generator)
    images = torch.cat([disfigured(glyphs[faces[i:i + 1000], labels[i:i + 1000]], generator) for i in range(0, n, 1000)])
    # 76 samples per chunk, as with samples of 110 KB in 8 MiB.
    return Task("characters", (images[N_TEST:], labels[N_TEST:]), (images[:N_TEST], labels[:N_TEST]), chunk_samples=76, nodes=4, ranks=16,
                batch=16, epochs=6, rate=0.1, width=8)


class RankNorm(nn.Module):
    """Normalises each rank's slice of a batch by itself; in evaluation by rank 0's running mean and variance."""

    def __init__(self, channels, ranks):
        super().__init__()
        self.channels, self.ranks = channels, ranks
        self.each = nn.BatchNorm2d(channels * ranks, affine=False)  # the channels of all ranks, next to each other
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        if not self.training:
            mean, var = self.each.running_mean[:self.channels], self.each.running_var[:self.channels]
            return nn.functional.batch_norm(x, mean, var, self.weight, self.bias)
        n, c, *sides = x.shape
        merged = x.view(self.ranks, n // self.ranks, c, *sides).transpose(0, 1).reshape(n // self.ranks, self.ranks * c, *sides)
        # The weight belongs to a channel of all ranks, so it is repeated, and its gradient is their sum.
        normal = nn.functional.batch_norm(merged, self.each.running_mean, self.each.running_var, self.weight.repeat(self.ranks),
                                          self.bias.repeat(self.ranks), training=True, momentum=0.1)
        return normal.view(n // self.ranks, self.ranks, c, *sides).transpose(0, 1).reshape(n, c, *sides)


def network(task, ranks):
    side = task.train[0].shape[-1] // 4
    return nn.Sequential(
        nn.Conv2d(1, task.width, 3, padding=1, stride=2), RankNorm(task.width, ranks), nn.ReLU(),
        nn.Conv2d(task.width, 2 * task.width, 3, padding=1, stride=2), RankNorm(2 * task.width, ranks), nn.ReLU(), nn.Flatten(),
        nn.Linear(2 * task.width * side * side, task.classes))


def accuracy_after(task, seed, numbers, ranks):
    """Returns the accuracy on the test set. numbers[epochs, steps, step]: the samples of each step, rank after rank. ranks: number of slices, each
    of which is normalised by itself."""
    torch.manual_seed(seed)
    model = network(task, ranks)
    optimizer = torch.optim.SGD(model.parameters(), lr=task.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, task.rate, numbers.shape[0] * numbers.shape[1])
    for step in numbers.reshape(-1, numbers.shape[2]):
        images, labels = (t[torch.from_numpy(step)] for t in task.train)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        return (model(task.test[0]).argmax(1) == task.test[1]).float().mean().item()
