#include "job/official_kernel.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <system_error>

#include <weightpress/error.h>

#include "model/file.h"
#include "model/sha256.h"
#include "model/text.h"
#include "ptxvm/ptx_parser.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;
using model::printable;

constexpr const char* kAdvice =
    "install it (pip install --no-deps dfloat11) or name the file with --kernel PATH";

KernelFile read_kernel(const fs::path& path, const KnownKernel& known) {
  const model::File file = model::File::open_readonly(path);
  const std::uint64_t size = file.size_bytes();
  if (size > ptxvm::kMaxPtxBytes) {
    throw Error(ErrorCode::kUsage, printable(path.native()) + ": a file of " + std::to_string(size) +
                                       " bytes is no kernel; name dfloat11's decode.ptx");
  }
  KernelFile kernel;
  kernel.path = path;
  kernel.text.resize(size);
  file.read_at(kernel.text.data(), size, 0);
  kernel.sha256 = model::hex_of(model::sha256(kernel.text));
  kernel.is_known = size == known.size_bytes && kernel.sha256 == known.sha256;
  return kernel;
}

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

bool speaks_of_df11(const fs::path& name) {
  const std::string text = lower_case(name.string());
  return text.find("dfloat11") != text.npos || text.find("df11") != text.npos;
}

class KernelSearch {
 public:
  KernelSearch(const SearchPlaces& places, const KnownKernel& known) : places_(places), known_(known) {}

  std::optional<KernelFile> run() {
    look_everywhere();
    if (found_) found_->notes = notes_;
    return std::move(found_);
  }

  /// Files of the name that are not the known one.
  const std::vector<fs::path>& passed_over() const { return passed_over_; }

 private:
  // Generous for any machine; a search ends, whatever the folders are. A look is one at a file or a folder.
  static constexpr std::uint64_t kMaxLooks = 6'000;
  static constexpr std::uint64_t kMaxEntries = 100'000;  // of one folder
  static constexpr int kNodeDepth = 3;                   // of folders below that of a custom node
  static constexpr std::size_t kMaxNotes = 5;

  using Look = void (KernelSearch::*)(const fs::path&);

  // ---- places

  void look_everywhere() {
    const fs::path& root = places_.root;
    const fs::path& here = places_.working_folder;
    // What is active, as the shell has it.
    for (const fs::path& folder : paths_of("PYTHONPATH")) look_in_packages(folder);
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONUSERBASE"})
      if (const auto prefix = path_of(name)) look_in_prefix(*prefix);
    for (const char* name : {".venv", "venv"}) look_in_prefix(here / name);
    for (const fs::path& folder : paths_of("PATH"))
      if (folder.filename() == "bin" || folder.filename() == "Scripts") look_in_prefix(folder.parent_path());
    // What users install without activating it.
    const auto home = path_of("HOME");
    if (home) look_in_prefix(*home / ".local");
    look_below("PIPX_HOME", "venvs");
    look_below("PYENV_ROOT", "versions");
    look_below("WORKON_HOME", "");
    look_below("UV_TOOL_DIR", "");
    for (const char* name : {"MAMBA_ROOT_PREFIX", "CONDA_ROOT"})
      if (const auto prefix = path_of(name)) look_in_conda(*prefix);
    if (home) {
      for (const char* name : {".local/share/pipx/venvs", ".local/pipx/venvs", ".local/share/uv/tools",
                               ".pyenv/versions", ".virtualenvs", ".conda/envs", "venvs", ".venvs", "envs"})
        for_each_in(*home / name, &KernelSearch::look_in_prefix);
      for (const char* name : {"miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba"})
        look_in_conda(*home / name);
      for (const char* name : {".venv", "venv"}) look_in_prefix(*home / name);
    }
    // The system's.
    for (const char* name : {"usr/local", "usr", "opt/venv"}) look_in_prefix(root / name);
    for (const char* name : {"opt/conda", "opt/miniconda3", "opt/anaconda3", "opt/miniforge3"})
      look_in_conda(root / name);
    // ComfyUI.
    if (const auto comfy = path_of("COMFYUI_PATH")) look_in_comfyui(*comfy);
    look_in_comfyui(here);
    look_in_comfyui(here / "ComfyUI");
    if (home)
      for (const char* name : {"ComfyUI", "comfy/ComfyUI", "Documents/ComfyUI"})
        look_in_comfyui(*home / name);
    for (const char* name : {"ComfyUI", "opt/ComfyUI"}) look_in_comfyui(root / name);
  }

  void look_below(const char* variable, const char* folder) {
    if (const auto place = path_of(variable)) for_each_in(*place / folder, &KernelSearch::look_in_prefix);
  }

  /// An installation of conda with its environments.
  void look_in_conda(const fs::path& prefix) {
    look_in_prefix(prefix);
    for_each_in(prefix / "envs", &KernelSearch::look_in_prefix);
  }

  /// A Python environment: bin, lib and so on lie in `prefix`.
  void look_in_prefix(const fs::path& prefix) {
    if (!prefixes_.insert(prefix.lexically_normal()).second) return;
    for (const char* lib : {"lib", "lib64"})
      for (const fs::path& python : folders_in(prefix / lib))
        if (python.filename().string().starts_with("python3"))
          for (const char* packages : {"site-packages", "dist-packages"}) look_in_packages(python / packages);
    look_in_packages(prefix / "Lib" / "site-packages");
  }

  void look_in_packages(const fs::path& folder) { look_at(folder / "dfloat11" / "decode.ptx"); }

  /// The nodes load the package of ComfyUI's own Python; forks carry the file along.
  void look_in_comfyui(const fs::path& folder) {
    for (const fs::path& node : folders_in(folder / "custom_nodes"))
      look_in_node(node, speaks_of_df11(node.filename()), kNodeDepth);
    for (const char* name :
         {".venv", "venv", "../python_embeded", "../python_embedded", "../.venv", "../venv"})
      if (fs::exists(folder / "custom_nodes", error_)) look_in_prefix(folder / name);
  }

  void look_in_node(const fs::path& folder, bool is_of_df11, int depth) {
    look_at(folder / "dfloat11_decode.ptx");
    if (is_of_df11) look_at(folder / "decode.ptx");
    if (depth == 0) return;
    for (const fs::path& sub : folders_in(folder)) {
      const bool is_named = speaks_of_df11(sub.filename());
      if (is_named || (is_of_df11 && !sub.filename().string().starts_with('.')))
        look_in_node(sub, true, depth - 1);
    }
  }

  // ---- steps

  void for_each_in(const fs::path& folder, Look look) {
    for (const fs::path& sub : folders_in(folder)) (this->*look)(sub);
  }

  /// In order of names, links to folders among them.
  std::vector<fs::path> folders_in(const fs::path& folder) {
    std::vector<fs::path> folders;
    if (!may_look()) return folders;
    fs::directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error_), end;
    for (std::uint64_t i = 0; !error_ && entry != end && i < kMaxEntries; ++i) {
      std::error_code unknown;
      if (entry->is_directory(unknown) && !unknown) folders.push_back(entry->path());
      entry.increment(error_);
    }
    std::ranges::sort(folders);
    return folders;
  }

  bool may_look() { return !found_ && num_looks_++ < kMaxLooks; }

  void look_at(const fs::path& path) {
    if (!may_look()) return;
    if (!fs::is_regular_file(path, error_)) return;
    const fs::path real = fs::canonical(path, error_);
    if (error_ || !seen_.insert(real).second) return;
    try {
      KernelFile kernel = read_kernel(path, known_);
      if (kernel.is_known) {
        found_ = std::move(kernel);
        return;
      }
      pass_over(path, "is not the known kernel (its SHA-256 is " + kernel.sha256 + ")");
    } catch (const Error& error) {
      pass_over(path, "cannot be used (" + std::string(error.what()) + ")");
    }
  }

  void pass_over(const fs::path& path, const std::string& why) {
    passed_over_.push_back(path);
    if (notes_.size() < kMaxNotes)
      notes_.push_back(printable(path.native()) + " " + why + " and was passed over; --kernel would use it");
  }

  // ---- the environment

  std::optional<fs::path> path_of(const char* variable) const {
    const auto value = places_.variable(variable);
    if (!value || value->empty()) return std::nullopt;
    return places_.working_folder / *value;
  }

  std::vector<fs::path> paths_of(const char* variable) const {
    std::vector<fs::path> paths;
    const std::string list = places_.variable(variable).value_or("");
    for (std::size_t begin = 0; begin < list.size();) {
      const std::size_t end = std::min(list.find(':', begin), list.size());
      if (end > begin) {
        fs::path path = places_.working_folder / list.substr(begin, end - begin);
        paths.push_back(path.has_filename() ? std::move(path) : path.parent_path());
      }
      begin = end + 1;
    }
    return paths;
  }

  const SearchPlaces& places_;
  const KnownKernel& known_;
  std::uint64_t num_looks_ = 0;
  std::set<fs::path> prefixes_, seen_;
  std::optional<KernelFile> found_;
  std::vector<fs::path> passed_over_;
  std::vector<std::string> notes_;
  std::error_code error_;
};

}  // namespace

SearchPlaces places_of_this_process() {
  SearchPlaces places;
  places.variable = [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  return places;
}

KernelFile find_kernel(const std::optional<fs::path>& given, const SearchPlaces& places,
                       const KnownKernel& known) {
  if (given) {
    KernelFile kernel = read_kernel(*given, known);
    if (!kernel.is_known) {
      kernel.notes.push_back(printable(given->native()) +
                             " is not the known official kernel: its SHA-256 is " + kernel.sha256 +
                             ", and what is found holds for this file");
    }
    return kernel;
  }
  if (const auto named = places.variable(kKernelVariable); named && !named->empty()) {
    KernelFile kernel;
    try {
      kernel = read_kernel(places.working_folder / *named, known);
    } catch (const Error& error) {
      throw Error(error.code(), std::string(error.what()) + " (" + kKernelVariable + " names this file)");
    }
    if (kernel.is_known) return kernel;
    throw Error(ErrorCode::kUsage, printable(*named) + ", which " + kKernelVariable +
                                       " names, is not the known official kernel (its SHA-256 is " +
                                       kernel.sha256 + "): to use it all the same, give it with --kernel");
  }
  KernelSearch search(places, known);
  if (auto kernel = search.run()) return std::move(*kernel);
  std::string passed_over;
  if (!search.passed_over().empty()) {
    passed_over = " (" + printable(search.passed_over().front().native()) +
                  " is another file, which only --kernel would use)";
  }
  throw Error(ErrorCode::kNotFound,
              std::string("the official kernel, decode.ptx of the Python package dfloat11, was not found: "
                          "neither in ") +
                  kKernelVariable + " nor in Python environments or ComfyUI's custom nodes" + passed_over +
                  "; " + kAdvice);
}

}  // namespace weightpress::job
