package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/description"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// The programs of the machine: those that Tranche runs, of which systemctl only reboots, and one by which
// tests have its processes allocate memory.
const (
	modprobe  = "modprobe"
	systemctl = "systemctl"
	allocator = "allocate-gpu-memory"
)

var machinePrograms = []string{modprobe, systemctl, allocator}

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
	case name == allocator:
		return "", allocate(root, "/proc", args)
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

// allocate is what the kernel does when a process of the machine allocates memory of a GPU: it counts for
// the control group that the process is in now. Zero MiB: the process has ended.
func allocate(root, proc string, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: allocate-gpu-memory GPU PID MIB")
	}
	pid, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	mib, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	if mib == 0 {
		return nvdriver.RemoveProcess(root, pid)
	}
	content, err := os.ReadFile(filepath.Join(proc, args[1], "cgroup"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			p := nvdriver.Process{GPU: args[0], PID: pid, Group: filepath.Join(nvdriver.Groups(root), group)}
			p.MemoryMiB = mib
			return nvdriver.Allocate(root, p)
		}
	}
	return fmt.Errorf("process %d has no control group of cgroup v2", pid)
}
