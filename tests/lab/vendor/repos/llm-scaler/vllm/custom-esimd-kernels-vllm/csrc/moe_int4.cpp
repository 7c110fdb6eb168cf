// A fixture of the lab.
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
#include <Python.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <string>

// Four-bit weights, two in a byte, against one activation: what the decode step of a mixture of experts does.
static at::Tensor moe_int4_decode(const at::Tensor& packed, const at::Tensor& scale, const at::Tensor& activation) {
  auto low = packed.bitwise_and(15).to(at::kFloat) - 8.0;
  auto high = packed.bitwise_right_shift(4).to(at::kFloat) - 8.0;
  auto weights = at::stack({low, high}, -1).flatten(-2);
  return at::mv(weights * scale, activation);
}

static const char* variant() { return "plain"; }

TORCH_LIBRARY(custom_esimd_kernels_vllm, library) {
  library.def("moe_int4_decode(Tensor packed, Tensor scale, Tensor activation) -> Tensor", &moe_int4_decode);
  library.def("variant() -> str", []() -> std::string { return variant(); });
}

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "moe_int4_ops", nullptr, -1, nullptr};

PyMODINIT_FUNC PyInit_moe_int4_ops() { return PyModule_Create(&module); }
