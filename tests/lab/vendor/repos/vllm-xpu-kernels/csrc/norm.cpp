// A fixture of the lab.
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
#include "ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  auto variance = input.pow(2).mean(-1, /*keepdim=*/true);
  return input * at::rsqrt(variance + epsilon) * weight;
}
