// Package libraries makes the simulated libnvidia-ml.so.1 of each branch of the driver: a library with
// exactly that branch's functions. Those that are not simulated answer NOT_SUPPORTED.
package libraries

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // the source of libcuda
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/test/simulator/nvml/symbols"
)

const nvmlPackage = "github.com/tranche-dev/tranche/test/simulator/nvml"

// Path returns the library of a branch in a folder that Build has filled.
func Path(folder string, branch int) string {
	return filepath.Join(folder, strconv.Itoa(branch), "libnvidia-ml.so.1")
}

// sandbox is libnvidia-sandboxutils.so.1, which the container toolkit opens if it is there: all that
// it can do is not supported, so that NVML is asked.
var sandbox = []string{"Init", "Shutdown", "GetDriverVersion", "GetGpuResource", "GetFileContent"}

// SandboxPath returns libnvidia-sandboxutils.so.1 in a folder that Build has filled.
func SandboxPath(folder string) string { return filepath.Join(folder, "libnvidia-sandboxutils.so.1") }

// CUDAPath returns libcuda.so.1 in a folder that Build has filled.
func CUDAPath(folder string) string { return filepath.Join(folder, "libcuda.so.1") }

//go:embed cuda/libcuda.c
var cudaSource []byte

// Build makes the libraries of some branches, libcuda and libnvidia-sandboxutils, with the compilers of Go and C (CC) for GOARCH.
func Build(ctx context.Context, folder string, branches ...int) error {
	temporary, err := os.MkdirTemp("", "nvml")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	archive := filepath.Join(temporary, "nvml.a")
	if err := run(ctx, "go", "build", "-buildmode=c-archive", "-ldflags=-s -w", "-o", archive, nvmlPackage); err != nil {
		return err
	}
	simulated, err := exports(filepath.Join(temporary, "nvml.h"))
	if err != nil {
		return err
	}
	if err := linkSandbox(ctx, SandboxPath(folder)); err != nil {
		return err
	}
	if err := BuildCUDA(ctx, CUDAPath(folder)); err != nil {
		return err
	}
	for _, branch := range branches {
		if err := link(ctx, temporary, archive, simulated, branch, Path(folder, branch)); err != nil {
			return fmt.Errorf("library of %d: %w", branch, err)
		}
	}
	return nil
}

// link makes the library of a branch.
func link(ctx context.Context, temporary, archive string, simulated map[string]bool, branch int, to string) error {
	stubs, script := filepath.Join(temporary, "stubs.c"), filepath.Join(temporary, "names.map")
	var code, versions bytes.Buffer
	fmt.Fprintf(&code, "int branchOfLibrary(void) { return %d; }\nint unsupported(void);\n", branch)
	versions.WriteString("{\nglobal:\n")
	for _, name := range symbols.Of(branch) {
		fmt.Fprintf(&versions, "  %s;\n", name)
	}
	// All functions are defined, because go-nvml in the archive refers to all of them.
	for _, name := range symbols.Of(math.MaxInt) {
		if !simulated[name] {
			fmt.Fprintf(&code, "int %s(void) { return unsupported(); }\n", name)
		}
	}
	versions.WriteString("local: *;\n};\n")
	if err := os.WriteFile(stubs, code.Bytes(), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(script, versions.Bytes(), 0o600); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	// Programs that run keep the library that they have opened.
	next := to + ".new"
	err := run(ctx, compiler(), "-shared", "-fPIC", "-s", "-o", next, stubs, "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive",
		"-Wl,-soname,libnvidia-ml.so.1", "-Wl,--version-script="+script, "-Wl,-z,nodelete,-z,defs", "-pthread", "-ldl")
	if err != nil {
		return err
	}
	return os.Rename(next, to)
}

// BuildCUDA makes libcuda.so.1.
func BuildCUDA(ctx context.Context, to string) error { return compile(ctx, cudaSource, to) }

func linkSandbox(ctx context.Context, to string) error {
	var code bytes.Buffer
	for _, name := range sandbox {
		fmt.Fprintf(&code, "int nvSandboxUtils%s(void) { return 2; }\n", name)
	}
	return compile(ctx, code.Bytes(), to)
}

// compile makes a library of one file in C.
func compile(ctx context.Context, code []byte, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	source, next := to+".c", to+".new"
	defer os.Remove(source)
	if err := os.WriteFile(source, code, 0o600); err != nil {
		return err
	}
	err := run(ctx, compiler(), "-shared", "-fPIC", "-Wall", "-Werror", "-s", "-o", next, source, "-Wl,-soname,"+filepath.Base(to))
	if err != nil {
		return err
	}
	// Programs that run keep the library that they have opened.
	return os.Rename(next, to)
}

// exports returns the functions that the header of a C archive declares.
func exports(header string) (map[string]bool, error) {
	text, err := os.ReadFile(header)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^extern .*\b(nvml\w+)\(`).FindAllSubmatch(text, -1) {
		all[string(match[1])] = true
	}
	return all, nil
}

// compiler is that of C for the architecture that GOARCH names.
func compiler() string { return cmp.Or(os.Getenv("CC"), "gcc") }

func run(ctx context.Context, words ...string) error {
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, text)
	}
	return nil
}
