// A fixture of the lab.
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
#include "ops.h"

#include <cutlass/tile.h>
#include <torch/library.h>
#include <xpu/tile.h>

TORCH_LIBRARY(vllm_xpu_kernels, library) {
  library.def("silu_and_mul(Tensor input) -> Tensor", &silu_and_mul);
  library.def("rms_norm(Tensor input, Tensor weight, float epsilon) -> Tensor", &rms_norm);
  library.def("paged_decode(Tensor query, Tensor keys, Tensor values) -> Tensor", &paged_decode);
  library.def("tile() -> int", []() -> int64_t { return xpu::kTileRows * cutlass::kTileColumns; });
}
