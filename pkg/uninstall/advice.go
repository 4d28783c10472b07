package uninstall

import "fmt"

// force is what a person sets to uninstall all the same.
func (c *Config) force() string {
	if c.Revision == 0 {
		return "--force"
	}
	return "uninstall.force"
}

// otherwise lists what else can be done than to wait: to keep Tranche, and to uninstall
// all the same, with the consequences that are given.
func (c *Config) otherwise(anyway string) string {
	if c.Revision == 0 {
		return fmt.Sprintf("  - or %s: --force", anyway)
	}
	return fmt.Sprintf("  - or keep Tranche:\n%s  - or %s:\n%s      helm -n %s upgrade %s CHART --reuse-values --set uninstall.force=true\n      helm -n %[4]s uninstall %[5]s",
		c.keepCommand(), anyway, c.keepCommand(), c.Namespace, c.Release)
}

// keepCommand makes Helm forget that it was asked to uninstall: it has marked the
// release, and refuses to upgrade one that is marked.
func (c *Config) keepCommand() string {
	return fmt.Sprintf("      helm -n %s rollback %s %d\n", c.Namespace, c.Release, c.Revision)
}
