// A fixture of the lab.
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
#include "ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>

at::Tensor silu_and_mul(const at::Tensor& input) {
  auto halves = input.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}
