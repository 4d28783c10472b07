package deviceplugin

import (
	"fmt"
	"slices"
	"strings"
)

// defaultName is the configuration of nodes without the label, if there is one of that name.
const defaultName = "default"

// Choose is the name of the configuration for a node, as the device plugin's config manager chooses
// it: that of the node's label; else the default that was set (DEFAULT_CONFIG there), empty: none;
// else the one with the name default; else the only one. Empty: none.
func Choose(label, set string, names []string) (string, error) {
	for _, named := range []struct{ what, name string }{{"the node's label " + Label, label}, {"the default", set}} {
		switch {
		case named.name == "":
		case slices.Contains(names, named.name):
			return named.name, nil
		default:
			return "", fmt.Errorf("%s is %q, but no device plugin configuration has that name; existing ones: %s",
				named.what, named.name, strings.Join(names, ", "))
		}
	}
	switch {
	case slices.Contains(names, defaultName):
		return defaultName, nil
	case len(names) == 1:
		return names[0], nil
	}
	return "", nil
}
