package formats

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	for name, tt := range map[string]struct {
		label, set string
		names      []string
		want, err  string
	}{
		"label":            {label: "b", set: "a", names: []string{"a", "b", "default"}, want: "b"},
		"default set":      {set: "a", names: []string{"a", "default"}, want: "a"},
		"default by name":  {names: []string{"a", "default"}, want: "default"},
		"the only one":     {names: []string{"a"}, want: "a"},
		"several":          {names: []string{"a", "b"}},
		"none":             {},
		"unknown label":    {label: "c", set: "a", names: []string{"a", "b"}, err: `the node's label nvidia.com/device-plugin.config is "c", but no device plugin configuration has that name; existing ones: a, b`},
		"unknown default":  {set: "c", names: []string{"a"}, err: `the default is "c", but no device plugin configuration has that name; existing ones: a`},
		"none for a label": {label: "c", err: `the node's label nvidia.com/device-plugin.config is "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ChooseDevicePluginConfig(tt.label, tt.set, tt.names)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}
