package nvfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// libDir is where Debian's driver packages put libraries.
const libDir = "usr/lib/x86_64-linux-gnu"

// driverLibraries are those of a datacenter driver; <version> follows each
// name. nvcdi takes every *.so.<version> beside libcuda.so.<version>.
var driverLibraries = []string{
	"libcuda.so", "libcudadebugger.so", "libnvcuvid.so", "libnvidia-allocator.so", "libnvidia-cfg.so",
	"libnvidia-encode.so", "libnvidia-gpucomp.so", "libnvidia-ml.so", "libnvidia-nvvm.so",
	"libnvidia-opencl.so", "libnvidia-opticalflow.so", "libnvidia-pkcs11-openssl3.so",
	"libnvidia-ptxjitcompiler.so", "libnvidia-sandboxutils.so", "vdpau/libvdpau_nvidia.so",
}

// driverBinaries are the programs that nvcdi mounts.
var driverBinaries = []string{
	"nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server",
	"nvidia-imex", "nvidia-imex-ctl",
}

// nvidiaSMI replaces nvidia-smi without Tools: it prints the device nodes and variables that
// the container was given.
const nvidiaSMI = `#!/bin/sh
# Simulated: there is no NVIDIA GPU here.
echo "NVIDIA-SMI @VERSION@ (simulated)   Driver Version: @VERSION@"
for node in /dev/nvidia[0-9]* /dev/nvidia-caps/nvidia-cap*; do
  [ -e "$node" ] && echo "  $node"
done
env | grep -E '^(NVIDIA|TRANCHE|CUDA)_' | sort | sed 's/^/  /'
exit 0
`

// writeDriver writes the files that a driver package installs, below driver/. Those for
// graphics, daemons and the library cache are left out: nvcdi warns that they are missing,
// as it does on most machines.
func (l *Layout) writeDriver(*nvstate.State) error {
	root, version := DriverRoot(l.Root), l.DriverVersion
	for _, lib := range driverLibraries {
		path := filepath.Join(root, libDir, lib)
		name := filepath.Base(lib)
		if err := l.writeLibrary(name, path+"."+version); err != nil {
			return err
		}
		if err := disk.Symlink(name+"."+version, path+".1"); err != nil {
			return err
		}
	}
	if err := disk.Symlink("libcuda.so.1", filepath.Join(root, libDir, "libcuda.so")); err != nil {
		return err
	}
	for path, content := range map[string]string{
		"lib/firmware/nvidia/" + version + "/gsp_ga10x.bin": "",
		"lib/firmware/nvidia/" + version + "/gsp_tu10x.bin": "",
		"etc/OpenCL/vendors/nvidia.icd":                     "libnvidia-opencl.so.1\n",
	} {
		if err := disk.WriteFile(filepath.Join(root, path), content); err != nil {
			return err
		}
	}
	return l.writePrograms()
}

// writeLibrary installs the file of a library, or one without functions where there is none.
func (l *Layout) writeLibrary(name, path string) error {
	file := l.Libraries[name]
	if file == "" {
		return disk.WriteFile(path, sharedObject(name+".1"))
	}
	source, err := os.Open(file)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.Install(source, path)
}

// writePrograms installs the simulated programs if Tools is set, and scripts for all others.
func (l *Layout) writePrograms() error {
	bin := filepath.Join(l.Root, nvtools.DriverBin)
	if l.Tools != "" {
		if err := InstallPrograms(l.Tools, bin, nvtools.Programs()...); err != nil {
			return fmt.Errorf("install the programs of the simulated driver: %w", err)
		}
	} else {
		smi := strings.ReplaceAll(nvidiaSMI, "@VERSION@", l.DriverVersion)
		if err := writeExecutable(filepath.Join(bin, nvtools.SMIProgram), smi); err != nil {
			return err
		}
	}
	for _, name := range driverBinaries {
		path := filepath.Join(bin, name)
		mps := name == nvtools.ControlProgram || name == nvtools.ServerProgram
		switch {
		case mps && l.NoMPS:
			if err := disk.RemoveFile(path); err != nil {
				return err
			}
		case mps && l.Tools != "":
		default:
			script := "#!/bin/sh\necho \"" + name + ": simulated, there is no NVIDIA GPU here\" >&2\nexit 1\n"
			if err := writeExecutable(path, script); err != nil {
				return err
			}
		}
	}
	return nil
}
