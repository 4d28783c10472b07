package formats

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
)

// defaultConfig is the configuration of nodes without the label, if there is one of that name.
const defaultConfig = "default"

// ChooseDevicePluginConfig is the name of the configuration for a node, as the device plugin's config manager chooses
// it: that of the node's label; else the default that was set (DEFAULT_CONFIG there), empty: none;
// else the one with the name default; else the only one. Empty: none.
func ChooseDevicePluginConfig(label, set string, all []string) (string, error) {
	for _, named := range []struct{ what, name string }{{"the node's label " + names.LabelDevicePluginConfig, label}, {"the default", set}} {
		switch {
		case named.name == "":
		case slices.Contains(all, named.name):
			return named.name, nil
		default:
			return "", fmt.Errorf("%s is %q, but no device plugin configuration has that name; existing ones: %s",
				named.what, named.name, strings.Join(all, ", "))
		}
	}
	switch {
	case slices.Contains(all, defaultConfig):
		return defaultConfig, nil
	case len(all) == 1:
		return all[0], nil
	}
	return "", nil
}
