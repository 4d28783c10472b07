package node

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tranche-dev/tranche/pkg/program"
)

// hookPath is where the host finds the program that CDI hooks run.
func (c *Config) hookPath() string { return filepath.Join(c.dataDir(), "nvidia-cdi-hook") }

// installHook puts the program that CDI hooks run where the host finds it. The
// runtime runs hooks on the host, outside our container.
func (c *Config) installHook() error {
	hook, err := os.Open(c.CDIHook)
	if err != nil {
		return fmt.Errorf("read the program for CDI hooks: %w", err)
	}
	defer hook.Close()
	if err := program.Install(hook, c.hookPath()); err != nil {
		return fmt.Errorf("install the program for CDI hooks on the host: %w", err)
	}
	return nil
}
