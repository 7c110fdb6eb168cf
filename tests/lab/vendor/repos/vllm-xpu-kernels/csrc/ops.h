// A fixture of the lab.
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <ATen/core/Tensor.h>

at::Tensor silu_and_mul(const at::Tensor& input);
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon);
at::Tensor paged_decode(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values);
