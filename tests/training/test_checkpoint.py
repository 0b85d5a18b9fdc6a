import pytest
import torch
from safetensors.torch import save_file

from torchcno.training.checkpoint import load_tensors, save_tensors


def test_tensors_of_every_kind_come_back_to_the_last_bit(tmp_path):
    shared = torch.randn(3, 4)
    tensors = {
        "float": shared,
        "view": shared.T,  # of the same memory, and not contiguous
        "double": torch.randn(2, dtype=torch.float64),
        "complex": torch.randn(2, 3, dtype=torch.complex64),
        "complex.view": torch.randn(2, 3, dtype=torch.complex64).mT,
        "scalar": torch.tensor(7),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "channels-last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    }
    note = {"epoch": 3, "error": 0.1 + 0.2, "none": None}
    save_tensors(tmp_path / "deep" / "file.safetensors", tensors, note)
    back, note_back = load_tensors(tmp_path / "deep" / "file.safetensors")
    assert note_back == note
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor), name


def test_the_same_tensors_make_the_same_bytes(tmp_path):
    tensors = {name: torch.full((2,), float(i)) for i, name in enumerate("bca")}
    for name in ("one", "two"):
        save_tensors(tmp_path / name, tensors, {"x": 1, "y": 2})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    save_tensors(path, {"w": torch.randn(100)})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged or no safetensors file"):
        load_tensors(path)


@pytest.mark.parametrize(
    "said", ["no JSON", "[]", '{"complex": ["v"]}', '{"complex": ["w"]}', '{"complex": 1}']
)
def test_what_another_program_says_of_its_tensors_is_named(tmp_path, said):
    path = tmp_path / "state.safetensors"
    save_file({"w": torch.randn(3)}, path, {"torchcno": said})
    with pytest.raises(ValueError, match=r"state\.safetensors is damaged or of another program"):
        load_tensors(path)


def test_any_flipped_bit_is_found(tmp_path):
    """Of a small file every one, whether it hits the tensors, their names or the digest itself."""
    path = tmp_path / "model.safetensors"
    save_tensors(path, {"w": torch.randn(3), "z": torch.randn(1, dtype=torch.complex64)})
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
            load_tensors(path)


def test_a_file_without_a_digest_is_read_with_a_word(tmp_path, caplog):
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.ones(3)}, path, {"torchcno": '{"complex": [], "note": {"epoch": 3}}'})
    tensors, note = load_tensors(path)
    assert (tensors["w"].tolist(), note) == ([1.0, 1.0, 1.0], {"epoch": 3})
    assert "model.safetensors has no checksum" in caplog.text


def test_a_header_without_end_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((87 * 10**6).to_bytes(8, "little"))
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged .*header has no end"):
        load_tensors(path)
