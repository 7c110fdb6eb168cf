// A fixture of the lab.
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

namespace cutlass {
// Columns that one work item of the fixture's kernels handles.
constexpr int kTileColumns = 16;
}  // namespace cutlass
