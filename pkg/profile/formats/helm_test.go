package formats

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// indented is a literal block in YAML.
func indented(by, text string) string {
	return strings.TrimRight(by+strings.ReplaceAll(text, "\n", "\n"+by), " ")
}

// Files in the values of a Helm chart are found wherever the values are.
func TestHelmValues(t *testing.T) {
	plugin := "devicePlugin:\n  config:\n    data:\n      slice-4: |\n" + indented("        ", shared)
	manager := "migManager:\n  config:\n    data:\n      config.yaml: |\n" + indented("        ", migConfigFile)
	const fromPlugin, fromManager = "device plugin:slice-4=slice-4", "mig-parted:all-1g.5gb=All_1g.5gb"
	flux := "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: a}\nspec:\n  values:\n"
	argo := "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\nspec:\n  sources:\n  - helm:\n"
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"values":                           {plugin + manager, []string{fromManager, fromPlugin}},
		"of a subchart":                    {"global: {a: b}\ngpu-operator:\n" + indented("  ", plugin), []string{fromPlugin}},
		"the device plugin's chart":        {"nvidia-device-plugin:\n  config:\n    map:\n      slice-4: |\n" + indented("        ", shared), []string{fromPlugin}},
		"a HelmRelease":                    {flux + indented("    ", manager), []string{fromManager}},
		"an Application":                   {argo + "      valuesObject:\n" + indented("        ", plugin), []string{fromPlugin}},
		"an Application with a text":       {argo + "      values: |\n" + indented("        ", plugin), []string{fromPlugin}},
		"a HelmChart of k3s":               {"kind: HelmChart\nmetadata: {name: a}\nspec:\n  valuesContent: |\n" + indented("    ", manager), []string{fromManager}},
		"a ConfigMap with values for Flux": {configMapOf("values.yaml", plugin), []string{fromPlugin}},
		"another chart's config.map":       {"other: {config: {map: {a: b}}}\n" + plugin, []string{fromPlugin}},
	} {
		t.Run(name, func(t *testing.T) {
			documents, err := Read("f", []byte(tt.text))
			require.NoError(t, err)
			assert.ElementsMatch(t, tt.want, profilesOf(documents))
			wrong := strings.NewReplacer("mig-enabled", "mig-enable", "replicas", "replica").Replace(tt.text)
			documents, err = Read("f", []byte(wrong))
			for _, d := range documents {
				for _, p := range d.Profiles {
					err = errors.Join(err, p.Err)
				}
			}
			require.ErrorContains(t, err, "(line ", "an error has a line of the file")
		})
	}
	for depth, found := range map[int]bool{19: true, 20: false} {
		text := plugin
		for range depth {
			text = "subchart:\n" + indented("  ", text)
		}
		documents, _ := Read("f", []byte(text))
		require.Equal(t, found, len(documents) > 0, "below %d subcharts", depth)
	}
	for _, text := range []string{"other: {config: {map: {a: b}}}\n", flux + "    a: b\n", argo + "      values: 'a: [b'\n", argo + "      values: ''\n", "migManager: {config: {data: [a, b]}}\n", strings.Repeat("a: {", 3000) + strings.Repeat("}", 3000)} {
		_, err := Read("f", []byte(text))
		require.ErrorContains(t, err, "files are below migManager.config.data, devicePlugin.config.data and config.map")
	}
}
