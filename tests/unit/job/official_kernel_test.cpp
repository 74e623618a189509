// Where the official kernel is looked for, in a file system and environment made for it.
#include "job/official_kernel.h"

#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include <weightpress/error.h>

#include "model/sha256.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

const std::string kText = "// the kernel that these tests take for the official one\n";
const std::string kOther = "// the kernel that these tests take for another fellow's\n";

class FindKernel : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(kText.size(), kOther.size());
    std::string name = (fs::temp_directory_path() / "find_kernel_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = fs::canonical(name);
    set("HOME", "home");
    fs::create_directories(root_ / "here");
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path write(const fs::path& path, const std::string& text = kText) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
    return root_ / path;
  }
  void set(const std::string& name, const std::string& folder) {
    variables_[name] = folder.empty() ? "" : (root_ / folder).string();
  }

  KernelFile find(const std::optional<fs::path>& given = {}) {
    SearchPlaces places;
    places.variable = [this](const char* name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::nullopt : std::optional(found->second);
    };
    places.root = root_;
    places.working_folder = root_ / "here";
    const std::string hash = model::hex_of(model::sha256(kText));
    return find_kernel(given, places, {kText.size(), hash});
  }
  /// The error that it throws.
  ErrorDetails failure(const std::optional<fs::path>& given = {}) {
    try {
      const KernelFile file = find(given);
      ADD_FAILURE() << "found " << file.path;
    } catch (const Error& error) {
      return error.details();
    }
    return {};
  }

  fs::path root_;
  std::map<std::string, std::string> variables_;
};

TEST_F(FindKernel, InEveryPlaceWherePythonInstalls) {
  set("VIRTUAL_ENV", "work/env");
  set("CONDA_PREFIX", "conda");
  set("PYTHONPATH", "");
  variables_["PYTHONPATH"] = (root_ / "first").string() + "::" + (root_ / "second").string() + "/";
  variables_["PATH"] = (root_ / "sbin").string() + ":" + (root_ / "tools/bin/").string();
  set("PIPX_HOME", "pipx");
  set("PYENV_ROOT", "pyenv");
  set("COMFYUI_PATH", "comfy");
  fs::create_directories(root_ / "comfy/custom_nodes");
  for (const char* place : {"first",
                            "second",
                            "work/env/lib/python3.11/site-packages",
                            "work/env/lib64/python3.9/site-packages",
                            "conda/lib/python3.12/site-packages",
                            "tools/lib/python3.10/site-packages",
                            "here/.venv/lib/python3.13/site-packages",
                            "home/.local/lib/python3.11/site-packages",
                            "pipx/venvs/app/lib/python3.11/site-packages",
                            "pyenv/versions/3.12.1/lib/python3.12/site-packages",
                            "home/.local/share/pipx/venvs/app/lib/python3.11/site-packages",
                            "home/.local/share/uv/tools/app/lib/python3.11/site-packages",
                            "home/.pyenv/versions/3.9.2/lib/python3.9/site-packages",
                            "home/miniconda3/envs/models/lib/python3.11/site-packages",
                            "home/anaconda3/lib/python3.11/site-packages",
                            "usr/lib/python3/dist-packages",
                            "usr/local/lib/python3.11/dist-packages",
                            "usr/local/lib/python3.11/site-packages",
                            "opt/conda/envs/a/lib/python3.11/site-packages",
                            "comfy/venv/lib/python3.11/site-packages",
                            "python_embeded/Lib/site-packages"}) {
    const fs::path path = write(fs::path(place) / "dfloat11/decode.ptx");
    const KernelFile file = find();
    // As the folders are joined, not as the system would spell them.
    EXPECT_EQ(fs::canonical(file.path), path);
    EXPECT_EQ(file.text, kText);
    EXPECT_TRUE(file.is_known);
    EXPECT_TRUE(file.notes.empty());
    fs::remove(path);
  }
  EXPECT_EQ(failure().code, ErrorCode::kNotFound);
}

TEST_F(FindKernel, AmongComfyUisNodes) {
  for (const char* place : {"here/custom_nodes/ComfyUI-DFloat11/decode.ptx",
                            "here/ComfyUI/custom_nodes/ComfyUI-DFloat11-Extended/dfloat11/decode.ptx",
                            "home/ComfyUI/custom_nodes/comfyui_dfloat11/src/kernels/decode.ptx",
                            "home/ComfyUI/custom_nodes/my-nodes/dfloat11_decode.ptx",
                            "home/ComfyUI/custom_nodes/my-nodes/dfloat11_v2/decode.ptx",
                            "home/comfy/ComfyUI/custom_nodes/x/DF11/native/decode.ptx"}) {
    const fs::path path = write(place);
    EXPECT_EQ(find().path, path);
    fs::remove(path);
  }
  // What is not called so may be anything, and what lies too deep is not looked for.
  write("home/ComfyUI/custom_nodes/my-nodes/decode.ptx");
  write("home/ComfyUI/custom_nodes/my-nodes/kernels/decode.ptx");
  write("home/ComfyUI/custom_nodes/dfloat11/1/2/3/4/decode.ptx");
  EXPECT_EQ(failure().code, ErrorCode::kNotFound);
}

TEST_F(FindKernel, OthersArePassedOver) {
  const fs::path other = write("home/.local/lib/python3.11/site-packages/dfloat11/decode.ptx", kOther);
  const ErrorDetails nothing = failure();
  EXPECT_EQ(nothing.code, ErrorCode::kNotFound);
  for (const std::string& needed :
       {other.string(), std::string("--kernel"), std::string("pip install"), std::string(kKernelVariable)})
    EXPECT_NE(nothing.message.find(needed), std::string::npos) << nothing.message;

  const fs::path path = write("home/ComfyUI/custom_nodes/dfloat11/decode.ptx");
  const KernelFile file = find();
  EXPECT_EQ(file.path, path);
  ASSERT_EQ(file.notes.size(), 1u);
  EXPECT_NE(file.notes[0].find(other.string()), std::string::npos);
  EXPECT_NE(file.notes[0].find(model::hex_of(model::sha256(kOther))), std::string::npos);
}

TEST_F(FindKernel, TheFirstPlaceCounts) {
  set("VIRTUAL_ENV", "env");
  write("usr/lib/python3/dist-packages/dfloat11/decode.ptx");
  write("home/.local/lib/python3.11/site-packages/dfloat11/decode.ptx");
  const fs::path first = write("env/lib/python3.11/site-packages/dfloat11/decode.ptx");
  EXPECT_EQ(find().path, first);
}

TEST_F(FindKernel, GivenByTheUser) {
  write("home/.local/lib/python3.11/site-packages/dfloat11/decode.ptx");
  const fs::path other = write("my.ptx", kOther), same = write("same.ptx");
  set(kKernelVariable, "same.ptx");
  EXPECT_EQ(find().path, same);
  // --kernel goes before the variable, and takes any file.
  const KernelFile file = find(other);
  EXPECT_EQ(file.path, other);
  EXPECT_FALSE(file.is_known);
  EXPECT_EQ(file.sha256, model::hex_of(model::sha256(kOther)));
  ASSERT_EQ(file.notes.size(), 1u);
  EXPECT_NE(file.notes[0].find(file.sha256), std::string::npos);
  EXPECT_TRUE(find(same).is_known);

  set(kKernelVariable, "my.ptx");
  EXPECT_EQ(failure().code, ErrorCode::kUsage);
  EXPECT_NE(failure().message.find("--kernel"), std::string::npos);
  set(kKernelVariable, "missing.ptx");
  EXPECT_EQ(failure().code, ErrorCode::kNotFound);
  EXPECT_NE(failure().message.find(kKernelVariable), std::string::npos);
  EXPECT_EQ(failure(root_ / "missing.ptx").code, ErrorCode::kNotFound);
  EXPECT_EQ(failure(root_ / "home").code, ErrorCode::kIo);
  set(kKernelVariable, "");  // as if it were not set
  EXPECT_TRUE(find().is_known);
  fs::resize_file(root_ / "my.ptx", (std::uint64_t{64} << 20) + 1);
  EXPECT_EQ(failure(other).code, ErrorCode::kUsage);
}

TEST_F(FindKernel, LinksAndFoldersInTheWay) {
  // A circle of links, a folder of the file's name, one that nobody may read, a broken link.
  fs::create_directories(root_ / "home/ComfyUI/custom_nodes/dfloat11/a/dfloat11");
  fs::create_directory_symlink(root_ / "home/ComfyUI/custom_nodes",
                               root_ / "home/ComfyUI/custom_nodes/dfloat11/loop");
  fs::create_directory_symlink("..", root_ / "home/ComfyUI/custom_nodes/dfloat11/a/dfloat11/up");
  fs::create_directories(root_ / "home/.local/lib/python3.11/site-packages/dfloat11/decode.ptx");
  fs::create_directories(root_ / "home/miniconda3/envs/x/lib");
  fs::create_symlink("nothing", root_ / "home/miniconda3/envs/x/lib/python3.10");
  fs::permissions(root_ / "home/miniconda3/envs/x", fs::perms::none);
  EXPECT_EQ(failure().code, ErrorCode::kNotFound);
  fs::permissions(root_ / "home/miniconda3/envs/x", fs::perms::all);
  // A link to the file, and an environment that is a link, are as good as they themselves.
  write("store/decode.ptx");
  fs::create_directories(root_ / "real/lib/python3.11/site-packages/dfloat11");
  fs::create_symlink(root_ / "store/decode.ptx",
                     root_ / "real/lib/python3.11/site-packages/dfloat11/decode.ptx");
  fs::create_directories(root_ / "home/.pyenv/versions");
  fs::create_directory_symlink(root_ / "real", root_ / "home/.pyenv/versions/alias");
  EXPECT_TRUE(find().is_known);
}

TEST_F(FindKernel, ASearchEnds) {
  // Wide and deep: all folders lead to all others.
  const fs::path nodes = root_ / "home/ComfyUI/custom_nodes";
  for (int i = 0; i < 16; ++i) fs::create_directories(nodes / ("dfloat11_" + std::to_string(i)));
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      fs::create_directory_symlink(nodes / ("dfloat11_" + std::to_string(j)),
                                   nodes / ("dfloat11_" + std::to_string(i)) / std::to_string(j));
  EXPECT_EQ(failure().code, ErrorCode::kNotFound);  // 16^4 folders otherwise
}

}  // namespace
}  // namespace weightpress::job
