package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/description"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// The programs of the machine that Tranche runs. systemctl only reboots.
const (
	modprobe  = "modprobe"
	systemctl = "systemctl"
)

var machinePrograms = []string{modprobe, systemctl}

// machineProgram is one of them, on the machine in whose driver root it lies. It returns what the
// process ends with.
func machineProgram(name string, args []string) int {
	said, err := runMachineProgram(name, args)
	fmt.Print(said)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

func runMachineProgram(name string, args []string) (said string, err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	root, ok := strings.CutSuffix(filepath.Dir(exe), "/"+nvtools.DriverBin)
	if !ok {
		return "", fmt.Errorf("%s is not in the driver root of a simulated machine", exe)
	}
	switch command := strings.Join(args, " "); {
	case name == systemctl && command == "reboot":
		return "", nvdriver.Reboot(root) // of all GPUs
	case name != modprobe:
		return "", fmt.Errorf("the simulated machine does not know how to %s", command)
	}
	m, inv, err := description.Read(root)
	if err != nil {
		return "", err
	}
	if len(inv.AMD) == 0 {
		return "", errors.New("the simulated machine has no GPUs of AMD's")
	}
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: root, Seed: m.Seed})
	if err != nil {
		return "", err
	}
	text, err := kernel.Modprobe(context.Background(), name, args...)
	return string(text), err
}
