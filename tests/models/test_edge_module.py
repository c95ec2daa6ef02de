"""EdgeModule: the runtime's maps as a layer, with gradients, in half precision, exported and compiled."""

import numpy as np
import pytest
import torch

from pixeldiff import EdgeDetector, EdgeModule, UserError


@pytest.fixture(scope="module")
def images():
    return torch.rand(2, 3, 33, 49, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def module(edge_weights):
    return EdgeModule(edge_weights)


def test_maps_are_those_of_the_runtime(module, images, edge_weights):
    with torch.inference_mode():
        maps = module(images)
    assert maps.shape == (2, 1, 33, 49)
    detector = EdgeDetector(edge_weights, threads=1)
    for image, one in zip(images, maps, strict=True):
        np.testing.assert_allclose(detector(image.permute(1, 2, 0).numpy()), one[0].numpy(), atol=1e-4)


def test_gradients_reach_images_and_weights(module, images):
    images = images.clone().requires_grad_()
    module(images).mean().backward()
    assert images.grad is not None
    assert images.grad.abs().sum() > 0
    assert all(weight.grad is not None for weight in module.network.stem.parameters())


@pytest.mark.parametrize(("dtype", "distance"), [(torch.float16, 0.02), (torch.bfloat16, 0.1), (torch.float64, 1e-4)])
def test_other_precisions(module, images, dtype, distance):
    with torch.inference_mode():
        maps = module(images)
        others = module.to(dtype)(images.to(dtype))
    assert others.dtype == dtype
    assert (others.to(maps.dtype) - maps).abs().max() < distance


def test_gray_is_three_equal_colors(module, images):
    gray = images[:, :1]
    torch.testing.assert_close(module(gray), module(gray.expand(-1, 3, -1, -1)))


def test_meta_tensors_show_that_no_device_is_named(module):
    assert module.to("meta")(torch.empty(1, 3, 17, 20, device="meta")).shape == (1, 1, 17, 20)


def test_export_keeps_the_maps(module, images):
    exported = torch.export.export(module, (images,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.testing.assert_close(exported.module()(images[:1].repeat(3, 1, 1, 1))[:1], module(images[:1]))


def test_compile_takes_the_whole_graph(module, images):
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(images), module(images))


@pytest.mark.parametrize("wrong", [torch.zeros(3, 9, 9), torch.zeros(1, 4, 9, 9), torch.zeros(1, 3, 9, 9).byte()])
def test_other_shapes_are_told(module, wrong):
    with pytest.raises(UserError, match="images are floats B x 3 x H x W"):
        module(wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wrong", [255.0, 1.02, -0.5, float("nan")])
def test_values_outside_0_to_1_are_told(module, dtype, wrong):
    images = torch.zeros(2, 3, 17, 20, dtype=dtype)
    images[1, 2, 3, 4] = wrong
    with pytest.raises(UserError, match=r"expected \[0, 1\]: divide levels by 255"):
        module.to(dtype)(images)


def test_no_images_give_no_maps(module):
    assert module(torch.zeros(0, 3, 17, 20)).shape == (0, 1, 17, 20)


def test_vmap_takes_stacks_of_batches(module, images):
    stack = torch.stack([images, images.flip(-1)])
    with torch.inference_mode():
        maps = torch.func.vmap(module)(stack)
        torch.testing.assert_close(maps[1], module(stack[1]))


def test_other_tasks_are_told():
    with pytest.raises(UserError, match="for classes, not for edges"):
        EdgeModule("bipdc-cifar100")
