package nvdriver

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tranche-dev/tranche/pkg/simulate/disk"
	"github.com/tranche-dev/tranche/pkg/simulate/nvstate"
	"github.com/tranche-dev/tranche/pkg/simulate/nvtools"
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

// nvidiaSMI stands in for the program in containers where there is nothing better: it
// says what the container was given.
const nvidiaSMI = `#!/bin/sh
# Simulated: there is no NVIDIA GPU here.
echo "NVIDIA-SMI @VERSION@ (simulated)   Driver Version: @VERSION@"
for node in /dev/nvidia[0-9]* /dev/nvidia-caps/nvidia-cap*; do
  [ -e "$node" ] && echo "  $node"
done
env | grep -E '^(NVIDIA|TRANCHE|CUDA)_' | sort | sed 's/^/  /'
exit 0
`

// layoutDriver writes the driver's files below driver/. What is not there is
// for graphics, for daemons that do not run here and for a library cache:
// nvcdi warns of those on most machines.
func (n *NVML) layoutDriver(*nvstate.State) error {
	root, version := driverRoot(n.root), n.inventory.DriverVersion
	for _, lib := range driverLibraries {
		path := filepath.Join(root, libDir, lib)
		name := filepath.Base(lib)
		if err := disk.WriteFile(path+"."+version, sharedObject(name+".1")); err != nil {
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
	return n.layoutPrograms()
}

// layoutPrograms writes those that do something, if the program that does it is at
// hand, and scripts for the others.
func (n *NVML) layoutPrograms() error {
	bin := filepath.Join(n.root, nvtools.DriverBin)
	if n.tools != "" {
		if err := installTools(n.tools, bin); err != nil {
			return fmt.Errorf("install the programs of the simulated driver: %w", err)
		}
	} else {
		smi := strings.ReplaceAll(nvidiaSMI, "@VERSION@", n.inventory.DriverVersion)
		if err := writeExecutable(filepath.Join(bin, nvtools.SMIProgram), smi); err != nil {
			return err
		}
	}
	for _, name := range driverBinaries {
		path := filepath.Join(bin, name)
		mps := name == nvtools.ControlProgram || name == nvtools.ServerProgram
		switch {
		case mps && n.inventory.NoMPS:
			if err := disk.RemoveFile(path); err != nil {
				return err
			}
		case mps && n.tools != "":
		default:
			script := "#!/bin/sh\necho \"" + name + ": simulated, there is no NVIDIA GPU here\" >&2\nexit 1\n"
			if err := writeExecutable(path, script); err != nil {
				return err
			}
		}
	}
	return nil
}
