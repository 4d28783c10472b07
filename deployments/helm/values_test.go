package helm_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestBadValues: a mistake is refused, and the error names the key.
func TestBadValues(t *testing.T) {
	for name, test := range map[string]struct {
		set  []string
		want []string
	}{
		"unknown key":           {[]string{"kubletPlugin.cdiDir=/x"}, []string{"'kubletPlugin' not allowed"}},
		"unknown nested key":    {[]string{"kubeletPlugin.kubletDir=/x"}, []string{"/kubeletPlugin", "'kubletDir' not allowed"}},
		"unknown deep key":      {[]string{"kubeletPlugin.updateStrategy.rollingUpdate.partition=1"}, []string{"/kubeletPlugin/updateStrategy/rollingUpdate", "'partition' not allowed"}},
		"wrong type":            {[]string{"kubeletPlugin.httpPort=http"}, []string{"/kubeletPlugin/httpPort", "want integer"}},
		"switch that is a word": {[]string{"admissionPolicy.enabled=yes"}, []string{"/admissionPolicy/enabled", "want boolean"}},
		"object for a string":   {[]string{"simulate.inventory.name=h100x8"}, []string{"/simulate/inventory", "want string"}},
		"relative path":         {[]string{"kubeletPlugin.cdiDir=run/cdi"}, []string{"/kubeletPlugin/cdiDir"}},
		"port too large":        {[]string{"apiServer.port=70000"}, []string{"/apiServer/port", "65,535"}},
		"pull policy":           {[]string{"image.pullPolicy=Sometimes"}, []string{"/image/pullPolicy", "'Always'"}},
		"node that is no name":  {[]string{"simulate.nodes.Node_A=h100x8"}, []string{"/simulate/nodes", "'Node_A' not allowed"}},
		"two inventories":       {[]string{`simulate.nodes.node-a=h100x8\,l4x4`}, []string{"/simulate/nodes/node-a"}},
		"profile":               {[]string{"mig.profiles={1g.10gb,1g10gb}"}, []string{"/mig/profiles/1"}},
		"profile twice":         {[]string{"mig.profiles={1g.10gb,1g.10gb}"}, []string{"/mig/profiles", "equal"}},
		"foreign partitions":    {[]string{"foreignPartitions=remove"}, []string{"/foreignPartitions", "'leave', 'adopt'"}},
		"force that is a word":  {[]string{"uninstall.force=yes"}, []string{"/uninstall/force", "want boolean"}},
		"simulator below /":     {[]string{"simulate.root=/simulate"}, []string{"/simulate/root"}},
		"amounts":               {[]string{"shareAmounts.check=strict"}, []string{"/shareAmounts/check", "want boolean"}},
		"no controllers":        {[]string{"controller.replicas=0"}, []string{"/controller/replicas", "minimum"}},
		"no node at once":       {[]string{"controller.maxUnavailable=0"}, []string{"/controller/maxUnavailable", "minimum"}},
		"nothing at once":       {[]string{"controller.maxUnavailable=0%"}, []string{"/controller/maxUnavailable"}},
		"more than all":         {[]string{"controller.maxUnavailable=101%"}, []string{"/controller/maxUnavailable"}},
		"a deadline in seconds": {[]string{"controller.drainDeadline=600"}, []string{"/controller/drainDeadline", "want string"}},
		"a deadline in days":    {[]string{"controller.deadlines.apply=1d"}, []string{"/controller/deadlines/apply"}},
		"no such deadline":      {[]string{"controller.deadlines.rollback=1m"}, []string{"/controller/deadlines", "'rollback' not allowed"}},
		"after the deadline":    {[]string{"controller.afterDeadline=force"}, []string{"/controller/afterDeadline", "'GiveUp', 'Force'"}},
		"a label and its value": {[]string{"controller.pauseLabels={a.b/c=true}"}, []string{"/controller/pauseLabels/0"}},
		"a label twice":         {[]string{"controller.pauseLabels={a,a}"}, []string{"/controller/pauseLabels", "equal"}},
		"memory modes":          {[]string{"amd.memoryModes=NPS4"}, []string{"/amd/memoryModes", "want boolean"}},
		"rules":                 {[]string{"metrics.prometheusRule.enabled=true"}, []string{"/metrics", "'prometheusRule' not allowed"}},
		"roles for people":      {[]string{"userRoles.aggregateToEdit=true"}, []string{"/userRoles", "'aggregateToEdit' not allowed"}},
		"a peer":                {[]string{"networkPolicy.metricsFrom[0].namespace=x"}, []string{"/networkPolicy/metricsFrom/0", "'namespace' not allowed"}},
		"toleration":            {[]string{"kubeletPlugin.tolerations[0].efect=NoSchedule"}, []string{"/kubeletPlugin/tolerations/0", "'efect' not allowed"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"template", "tranche", chart, "--kube-version", kubeVersion}
			for _, set := range test.set {
				args = append(args, "--set", set)
			}
			_, errOut, err := helm(t, args...)
			require.Error(t, err)
			for _, want := range test.want {
				require.Contains(t, errOut, want)
			}
		})
	}
}

// TestSchemaIsStrict: at every level unknown keys are refused, and everything
// is described.
func TestSchemaIsStrict(t *testing.T) {
	var walk func(path string, node map[string]any)
	walk = func(path string, node map[string]any) {
		if path != "" {
			require.NotEmpty(t, node["description"], "%s has no description", path)
		}
		if items, ok := node["items"].(map[string]any); ok && items["properties"] != nil {
			walk(path+"[]", items)
		}
		patterns, _ := node["patternProperties"].(map[string]any)
		for _, child := range patterns {
			if child := child.(map[string]any); child["properties"] != nil {
				walk(path+".*", child)
			}
		}
		properties, ok := node["properties"].(map[string]any)
		if !ok {
			return
		}
		require.Equal(t, false, node["additionalProperties"], "%s lets unknown keys pass", path)
		for key, child := range properties {
			walk(strings.TrimPrefix(path+"."+key, "."), child.(map[string]any))
		}
	}
	walk("", readSchema(t))
}

// TestReadmeListsValues compares the README's table with values.yaml: the keys,
// and the defaults where they are one word.
func TestReadmeListsValues(t *testing.T) {
	readme, err := os.ReadFile(chart + "/README.md")
	require.NoError(t, err)
	inReadme := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+?) \\| .+ \\|$").FindAllStringSubmatch(string(readme), -1) {
		inReadme[row[1]] = strings.Trim(row[2], "`")
	}

	content, err := os.ReadFile(chart + "/values.yaml")
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, yaml.UnmarshalStrict(content, &values))
	inValues := map[string]any{}
	leaves("", values, readSchema(t), inValues)

	require.Equal(t, slices.Sorted(maps.Keys(inValues)), slices.Sorted(maps.Keys(inReadme)), "keys in values.yaml and in README.md")
	for key, value := range inValues {
		switch value := value.(type) {
		case string:
			if value == "" {
				value = `""`
			}
			require.Equal(t, value, inReadme[key], key)
		case bool, float64:
			require.Equal(t, fmt.Sprint(value), inReadme[key], key)
		}
	}
}

// leaves collects the values that are not objects with keys of ours.
func leaves(path string, values, schema map[string]any, found map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	for key, value := range values {
		path := strings.TrimPrefix(path+"."+key, ".")
		child, _ := properties[key].(map[string]any)
		if object, ok := value.(map[string]any); ok && len(object) > 0 && child["properties"] != nil {
			leaves(path, object, child, found)
			continue
		}
		found[path] = value
	}
}

func readSchema(t *testing.T) map[string]any {
	t.Helper()
	content, err := os.ReadFile(chart + "/values.schema.json")
	require.NoError(t, err)
	var schema map[string]any
	require.NoError(t, json.Unmarshal(content, &schema))
	return schema
}
