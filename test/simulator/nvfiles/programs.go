package nvfiles

import (
	"os"
	"path/filepath"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// toolsName is the one copy of the program to which all names are linked.
const toolsName = "simulated-nvidia-tools"

// InstallPrograms puts one program into a folder under several names. Processes that run keep the
// file that they were started from.
func InstallPrograms(tools, bin string, names ...string) error {
	source, err := os.Open(tools)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	installed := filepath.Join(bin, toolsName)
	if err := durable.Install(source, installed); err != nil {
		return err
	}
	info, err := os.Stat(installed)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(bin, name)
		if old, err := os.Stat(path); err == nil && os.SameFile(old, info) {
			continue
		}
		next := path + ".next"
		if err := disk.RemoveFile(next); err != nil {
			return err
		}
		if err := os.Link(installed, next); err != nil {
			return err
		}
		if err := os.Rename(next, path); err != nil {
			return err
		}
	}
	return nil
}
