// A fixture of the lab.
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
#include "ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/softmax.h>
#include <xpu/tile.h>

#include <algorithm>
#include <cmath>
#include <vector>

// One query against all keys, tile by tile, as a kernel for a card would go over them.
at::Tensor paged_decode(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values) {
  std::vector<at::Tensor> scores;
  for (int64_t row = 0; row < keys.size(0); row += xpu::kTileRows) {
    auto tile = keys.slice(0, row, std::min<int64_t>(row + xpu::kTileRows, keys.size(0)));
    scores.push_back(at::mv(tile, query));
  }
  auto weights = at::softmax(at::cat(scores) / std::sqrt(static_cast<double>(query.size(0))), 0);
  return at::mv(values.t(), weights);
}
