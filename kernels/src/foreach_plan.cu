#include <algorithm>

#include "foreach.cuh"

namespace ddp::kernels {
namespace {

bool aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

bool packs(const UpdateChunk& chunk) {
  return aligned(chunk.parameter) && aligned(chunk.gradient) && aligned(chunk.state0) && aligned(chunk.state1);
}
bool packs(const ArrayChunk& chunk) { return aligned(chunk.data); }

template <class Table>
void cut(Table& table) {
  constexpr std::int64_t kEnoughBlocks = 4096;  // to fill any device several times over
  constexpr std::int64_t kMostTiles = 32;
  std::int64_t tiles = 0;
  for (std::int32_t i = 0; i < table.count; ++i) tiles += (table.chunks[i].numel + kForeachTile - 1) / kForeachTile;
  table.block_elements = kForeachTile * std::clamp<std::int64_t>(tiles / kEnoughBlocks, 1, kMostTiles);
  std::int64_t blocks = 0;
  for (std::int32_t i = 0; i < table.count; ++i) {
    auto& chunk = table.chunks[i];
    chunk.first_block = static_cast<std::int32_t>(blocks);
    chunk.packed = packs(chunk);
    blocks += (chunk.numel + table.block_elements - 1) / table.block_elements;
  }
  table.blocks = static_cast<std::int32_t>(blocks);
}

bool large_parameters() {
  static const bool can = [] {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12010;
  }();
  return can;
}

}  // namespace

int update_capacity() { return large_parameters() ? UpdateTable::kCapacity : kSmallUpdate; }
int array_capacity() { return large_parameters() ? ArrayTable::kCapacity : kSmallArray; }

void plan(UpdateTable& table) { cut(table); }
void plan(ArrayTable& table) { cut(table); }

}  // namespace ddp::kernels
