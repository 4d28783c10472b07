package hardware

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
)

// inside is set for this program when it runs in the container.
const inside = "TRANCHE_HARDWARE_TEST_INSIDE"

// removePrograms removes what the tests have built.
var removePrograms = func() {}

// TestMain is also the program in the container, where it lists NVIDIA's devices; a
// CUDA program; and an MPS daemon on its way to being one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == mps.LaunchCommand {
		os.Exit(mps.Launch(os.Args[2:]))
	}
	if text := os.Getenv(asClient); text != "" {
		os.Exit(client(text))
	}
	if os.Getenv(inside) == "" {
		code := m.Run()
		removePrograms()
		os.Exit(code)
	}
	for _, pattern := range []string{"/dev/nvidia*", "/dev/nvidia-caps*/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil || info.Mode()&os.ModeCharDevice == 0 {
				continue
			}
			opened := "opens"
			file, err := os.Open(path)
			if err != nil {
				opened = err.Error()
			} else {
				file.Close()
			}
			fmt.Println(path, opened)
		}
	}
	fmt.Println("NVIDIA_VISIBLE_DEVICES=" + os.Getenv("NVIDIA_VISIBLE_DEVICES"))
}

// checkContainer: containerd gives a container the devices that the CDI file
// names, and no others. The container's only program is this test, so it needs no
// image and no registry.
func checkContainer(t *testing.T, m *machine) {
	if m.simulated {
		t.Skip("simulated GPUs have no devices that a container can open")
	}
	ctr := containerd(t)
	devices := devicesNow(t, m)
	if len(devices) == 0 {
		t.Skip("MIG mode is on and no partition exists: there is no device to give to a container")
	}
	if m.hook == "" {
		t.Skip("no nvidia-cdi-hook: copy bin/nvidia-cdi-hook beside this program, or install NVIDIA's container toolkit")
	}
	common, err := m.CommonEdits(m.ctx(t), nil)
	require.NoError(t, err)
	common.Env = append(common.Env, inside+"=1")
	folder, err := cdi.Open(*cdiDir)
	require.NoError(t, err)
	const claim = "tranche-hardware-test"
	require.NoError(t, folder.Write(claim, []byte("{}"), common, devices[:1]))
	t.Cleanup(func() { assert.NoError(t, folder.Remove(claim)) })

	out, err := exec.CommandContext(m.ctx(t), ctr, "run", "--rm", "--device", cdi.DeviceID(claim, devices[0].Name),
		"--rootfs", rootFS(t), claim, "/hardware-test").CombinedOutput()
	t.Logf("%s in a container sees:\n%s", devices[0].Name, out)
	require.NoError(t, err)
	var wanted []string
	for _, n := range slices.Concat(common.DeviceNodes, devices[0].Edits.DeviceNodes) {
		if strings.HasPrefix(n.Path, "/dev/nvidia") && !slices.Contains(wanted, n.Path+" opens") {
			wanted = append(wanted, n.Path+" opens")
		}
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "/dev/nvidia") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	assert.ElementsMatch(t, wanted, got)
	assert.Contains(t, string(out), "NVIDIA_VISIBLE_DEVICES=void")
}

// containerd finds a ctr that reaches a containerd.
func containerd(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run a container")
	}
	ctr, err := exec.LookPath("ctr")
	if err != nil {
		t.Skip("no ctr on this machine, so no container is tried")
	}
	if out, err := exec.CommandContext(t.Context(), ctr, "version").CombinedOutput(); err != nil {
		t.Skipf("ctr reaches no containerd, so no container is tried: %s", out)
	}
	return ctr
}

// rootFS is a root folder with this program and the libraries that it is linked
// with.
func rootFS(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	copyFile(t, self, filepath.Join(root, "hardware-test"))
	program, err := elf.Open(self)
	require.NoError(t, err)
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz-1)
		_, err := p.ReadAt(name, 0)
		require.NoError(t, err)
		copyFile(t, string(name), filepath.Join(root, string(name)))
	}
	libraries, err := program.ImportedLibraries()
	require.NoError(t, err)
	for _, library := range libraries {
		for _, folder := range []string{"/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib"} {
			if _, err := os.Stat(filepath.Join(folder, library)); err == nil {
				copyFile(t, filepath.Join(folder, library), filepath.Join(root, folder, library))
				break
			}
		}
	}
	return root
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(t, os.WriteFile(to, data, 0o755))
}
