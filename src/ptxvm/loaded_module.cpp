#include "ptxvm/loaded_module.h"

#include <cstring>

#include "ptxvm/lowering.h"
#include "ptxvm/ptx_parser.h"

namespace weightpress::ptxvm {
namespace {

// Of all variables of a module together.
constexpr std::uint64_t kMaxVariableBytes = std::uint64_t{1} << 28;

Unexpected problem(std::uint32_t line, const std::string& what) {
  return Unexpected(ErrorCode::kCorruptFile, "line " + std::to_string(line) + ": " + what);
}

bool has_memory(const Variable& variable) {
  return variable.space == Space::kGlobal || variable.space == Space::kConst;
}

Result<void> allocate_variables(LoadedModule::State& state) {
  std::uint64_t sum = 0;
  for (const Variable& variable : state.module.variables) {
    state.addresses.push_back(0);
    if (!has_memory(variable)) continue;
    if (variable.is_extern)
      return problem(variable.line,
                     std::string(variable.name) + " is defined elsewhere, which is not supported");
    if (variable.bytes > kMaxVariableBytes - sum)
      return problem(variable.line, "the module's variables take more than 256 MiB");
    sum += variable.bytes;
    state.addresses.back() = state.memory.allocate(
        variable.bytes, {.name = std::string(variable.name), .read_only = variable.space == Space::kConst});
  }
  return {};
}

void fill_variables(LoadedModule::State& state) {
  for (std::size_t v = 0; v < state.addresses.size(); ++v) {
    const Variable& variable = state.module.variables[v];
    if (!has_memory(variable)) continue;
    std::uint8_t* const bytes = state.memory.host_pointer(state.addresses[v], variable.bytes);
    std::copy(variable.initial.begin(), variable.initial.end(), bytes);
    for (const Variable::Address& address : variable.addresses) {
      const std::uint64_t value =
          state.addresses[address.variable] + static_cast<std::uint64_t>(address.addend);
      if (address.offset_bytes + sizeof value <= variable.bytes)
        std::memcpy(bytes + address.offset_bytes, &value, sizeof value);
    }
  }
}

KernelInfo describe(const Function& function, const Program& program) {
  KernelInfo info;
  info.name = function.name;
  for (std::uint32_t p = 0; p < function.num_parameters; ++p) {
    info.parameters.push_back(
        {program.layout.parameter_offsets[p], static_cast<std::uint32_t>(function.variables[p].bytes)});
  }
  info.parameter_bytes = program.layout.parameter_bytes;
  info.static_shared_bytes = program.layout.static_shared_bytes;
  info.local_bytes = program.layout.local_bytes;
  if (function.max_threads != 0) info.max_threads = std::min(info.max_threads, function.max_threads);
  for (const Program::Block& block : program.blocks) info.num_instructions += block.num_instructions;
  info.num_registers = program.num_slots;
  return info;
}

}  // namespace

LoadedModule::LoadedModule(std::unique_ptr<State> state) : state_(std::move(state)) {}

LoadedModule::~LoadedModule() {
  for (const std::uint64_t address : state_->addresses)
    if (address != 0) state_->memory.free(address);
}

Result<std::unique_ptr<LoadedModule>> LoadedModule::load(std::string ptx, Memory& memory) {
  auto parsed = parse_ptx(std::move(ptx));
  if (!parsed) return Unexpected(parsed.error());
  std::unique_ptr<LoadedModule> loaded(new LoadedModule(std::make_unique<State>(memory)));
  State& state = *loaded->state_;
  state.module = std::move(*parsed);
  if (auto allocated = allocate_variables(state); !allocated) return Unexpected(allocated.error());
  fill_variables(state);
  for (const Function& function : state.module.functions) {
    if (!function.is_entry || !function.has_body) continue;
    auto lowered = lower_kernel(state.module, function, state.addresses);
    if (!lowered) return Unexpected(lowered.error());
    LoadedKernel kernel{.function = &function, .info = {}, .program = make_program(std::move(*lowered))};
    kernel.info = describe(function, kernel.program);
    state.kernels.emplace(std::string(function.name), std::move(kernel));
  }
  return loaded;
}

std::vector<std::string> LoadedModule::kernel_names() const {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : state_->kernels) names.push_back(name);
  return names;
}

const KernelInfo* LoadedModule::find_kernel(std::string_view name) const {
  const LoadedKernel* const kernel = state_->find(name);
  return kernel == nullptr ? nullptr : &kernel->info;
}

std::optional<LoadedModule::GlobalVariable> LoadedModule::find_variable(std::string_view name) const {
  for (std::size_t v = 0; v < state_->addresses.size(); ++v) {
    const Variable& variable = state_->module.variables[v];
    if (variable.name == name && state_->addresses[v] != 0)
      return GlobalVariable{state_->addresses[v], variable.bytes};
  }
  return std::nullopt;
}

}  // namespace weightpress::ptxvm
