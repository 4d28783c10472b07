package nvidia

import (
	"fmt"
	"os"

	"github.com/tranche-dev/tranche/pkg/durable"
)

// installHook installs the program that CDI hooks run on the host, where the container
// runtime runs them.
func (v Vendor) installHook() error {
	hook, err := os.Open(v.CDIHook)
	if err != nil {
		return fmt.Errorf("read the program for CDI hooks: %w", err)
	}
	defer hook.Close()
	if err := durable.Install(hook, v.CDIHookPath); err != nil {
		return fmt.Errorf("install the program for CDI hooks on the host: %w", err)
	}
	return nil
}
