package helm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/golden"
)

// TestBadValues: a mistake is refused, and the error names the key.
func TestBadValues(t *testing.T) {
	requireRefused(t, map[string]refusal{
		"unknown key":           {"kubletPlugin.cdiDir=/x", []string{"'kubletPlugin' not allowed"}},
		"unknown nested key":    {"kubeletPlugin.kubletDir=/x", []string{"/kubeletPlugin", "'kubletDir' not allowed"}},
		"unknown deep key":      {"kubeletPlugin.updateStrategy.rollingUpdate.partition=1", []string{"/kubeletPlugin/updateStrategy/rollingUpdate", "'partition' not allowed"}},
		"wrong type":            {"kubeletPlugin.httpPort=http", []string{"/kubeletPlugin/httpPort", "want integer"}},
		"switch that is a word": {"admissionPolicy.enabled=yes", []string{"/admissionPolicy/enabled", "want boolean"}},
		"object for a string":   {"simulate.inventory.name=h100x8", []string{"/simulate/inventory", "want string"}},
		"relative path":         {"kubeletPlugin.cdiDir=run/cdi", []string{"/kubeletPlugin/cdiDir"}},
		"port too large":        {"apiServer.port=70000", []string{"/apiServer/port", "65,535"}},
		"pull policy":           {"image.pullPolicy=Sometimes", []string{"/image/pullPolicy", "'Always'"}},
		"node that is no name":  {"simulate.nodes.Node_A=h100x8", []string{"/simulate/nodes", "'Node_A' not allowed"}},
		"two inventories":       {`simulate.nodes.node-a=h100x8\,l4x4`, []string{"/simulate/nodes/node-a"}},
		"profile":               {"deviceClasses.migProfiles={1g.10gb,1g10gb}", []string{"/deviceClasses/migProfiles/1"}},
		"profile twice":         {"deviceClasses.migProfiles={1g.10gb,1g.10gb}", []string{"/deviceClasses/migProfiles", "equal"}},
		"foreign partitions":    {"foreignPartitions=remove", []string{"/foreignPartitions", "'Keep', 'RemoveIdle'"}},
		"force that is a word":  {"uninstall.force=yes", []string{"/uninstall/force", "want boolean"}},
		"simulator below /":     {"simulate.root=/simulate", []string{"/simulate/root"}},
		"another driver":        {"simulate.nvidiaDriver=536", []string{"/simulate/nvidiaDriver", "615"}},
		"amounts":               {"shareAmountChecks.enabled=strict", []string{"/shareAmountChecks/enabled", "want boolean"}},
		"no controllers":        {"controller.replicas=0", []string{"/controller/replicas", "minimum"}},
		"no node at once":       {"controller.maxUnavailable=0", []string{"/controller/maxUnavailable", "minimum"}},
		"nothing at once":       {"controller.maxUnavailable=0%", []string{"/controller/maxUnavailable"}},
		"no number of failures": {"controller.maxFailures=-1", []string{"/controller/maxFailures", "minimum"}},
		"too many failures":     {"controller.maxFailures=101%", []string{"/controller/maxFailures"}},
		"more than all":         {"controller.maxUnavailable=101%", []string{"/controller/maxUnavailable"}},
		"a deadline in seconds": {"controller.drainDeadline=600", []string{"/controller/drainDeadline", "want string"}},
		"a deadline in days":    {"controller.deadlines.applying=1d", []string{"/controller/deadlines/applying"}},
		"no interval":           {"kubeletPlugin.usage.interval=0m0s", []string{"/kubeletPlugin/usage/interval"}},
		"no such deadline":      {"controller.deadlines.rollback=1m", []string{"/controller/deadlines", "'rollback' not allowed"}},
		"after the deadline":    {"controller.afterDeadline=force", []string{"/controller/afterDeadline", "'GiveUp', 'Force'"}},
		"a label and its value": {"controller.pauseLabels={a.b/c=true}", []string{"/controller/pauseLabels/0"}},
		"a label twice":         {"controller.pauseLabels={a,a}", []string{"/controller/pauseLabels", "equal"}},
		"memory modes":          {"amd.memoryPartitions.enabled=NPS4", []string{"/amd/memoryPartitions/enabled", "want boolean"}},
		"rules":                 {"metrics.rules.enabled=true", []string{"/metrics", "'rules' not allowed"}},
		"roles for people":      {"userRoles.aggregateToEdit=true", []string{"/userRoles", "'aggregateToEdit' not allowed"}},
		"an account nowhere":    {"userRoles.subjects[0].kind=ServiceAccount,userRoles.subjects[0].name=a", []string{"/userRoles/subjects/0", "namespace"}},
		"a peer":                {"networkPolicy.metricsFrom[0].namespace=x", []string{"/networkPolicy/metricsFrom/0", "'namespace' not allowed"}},
		"registry with a path":  {"global.imageRegistry=https://registry.example", []string{"/global/imageRegistry"}},
		"global secrets":        {"global.imagePullSecrets={a}", []string{"/global/imagePullSecrets/0", "want object"}},
		"digest":                {"image.digest=sha256:12", []string{"/image/digest"}},
		"label that is a list":  {"commonLabels.a={b}", []string{"/commonLabels/a", "want string"}},
		"label of the chart":    {`commonLabels.app\.kubernetes\.io/name=x`, []string{"/commonLabels/app.kubernetes.io~1name"}},
		"value of a label":      {"commonLabels.a=b c", []string{"/commonLabels/a"}},
		"label of the selector": {`controller.podLabels.app\.kubernetes\.io/component=x`, []string{"/controller/podLabels/app.kubernetes.io~1component"}},
		"arguments":             {"kubeletPlugin.extraArgs=-v=6", []string{"/kubeletPlugin/extraArgs", "want array"}},
		"variable":              {"controller.extraEnv[0].value=x", []string{"/controller/extraEnv/0", "'name'"}},
		"source of a variable":  {"controller.extraEnv[0].name=A,controller.extraEnv[0].from=x", []string{"/controller/extraEnv/0", "'from' not allowed"}},
		"no account":            {"controller.serviceAccount.create=false", []string{"/controller/serviceAccount/name", "minLength"}},
		"user":                  {"controller.podSecurityContext.runAsUser=root", []string{"/controller/podSecurityContext/runAsUser", "want integer"}},
		"security context":      {"kubeletPlugin.securityContext.priviledged=true", []string{"/kubeletPlugin/securityContext", "'priviledged' not allowed"}},
		"service":               {"metrics.service.enabled=1", []string{"/metrics/service/enabled", "want boolean"}},
		"monitor":               {"metrics.serviceMonitor.interval=often", []string{"/metrics/serviceMonitor/interval"}},
		"class to test":         {"test.deviceClass=GPU", []string{"/test/deviceClass"}},
		"openshift":             {"openshift.enabled=yes", []string{"/openshift/enabled", "'auto'"}},
		"a project":             {"translate.volcano=true", []string{"/translate", "'volcano' not allowed"}},
		"hook":                  {"uninstall.hook.enabled=never", []string{"/uninstall/hook/enabled", "want boolean"}},
		"scheduler's name":      {"scheduler.schedulerName=default-scheduler", []string{"/scheduler/schedulerName"}},
		"no schedulers":         {"scheduler.replicas=0", []string{"/scheduler/replicas", "minimum"}},
		"time for a node":       {"scheduler.filterTimeout=2", []string{"/scheduler/filterTimeout", "want string"}},
		"toleration":            {"kubeletPlugin.tolerations[0].efect=NoSchedule", []string{"/kubeletPlugin/tolerations/0", "'efect' not allowed"}},
	})
}

func TestOneAccountForTwoPrograms(t *testing.T) {
	_, errOut, err := helm(t, "template", "tranche", chart, "--kube-version", kubeVersion, "--set", "controller.serviceAccount.name=a,kubeletPlugin.serviceAccount.name=a")
	require.Error(t, err)
	require.Contains(t, errOut, "are the same")
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
		// Other charts of a parent chart have keys there, too.
		require.Equal(t, path == "global", node["additionalProperties"], "%s lets unknown keys pass", path)
		for key, child := range properties {
			walk(strings.TrimPrefix(path+"."+key, "."), child.(map[string]any))
		}
	}
	walk("", readSchema(t))
}

// TestReadmeListsValues: the table of the README has every value, with its default and
// the comment of values.yaml. With -update it is written.
func TestReadmeListsValues(t *testing.T) {
	content, err := os.ReadFile(chart + "/values.yaml")
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, yaml.UnmarshalStrict(content, &values))
	found := map[string]any{}
	leaves("", values, readSchema(t), found)

	var table strings.Builder
	table.WriteString("\n| value | default | meaning |\n| --- | --- | --- |\n")
	for _, c := range comments(string(content)) {
		value, ok := found[c.key]
		if !ok {
			continue
		}
		delete(found, c.key)
		require.NotEmpty(t, c.text, "%s has no comment in values.yaml", c.key)
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", c.key, defaultText(t, value), strings.TrimSuffix(c.text, "."))
	}
	require.Empty(t, found, "values without a place in the table")

	const begin, end = "<!-- generated:values -->\n", "\n<!-- end -->"
	readme, err := os.ReadFile(chart + "/README.md")
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(readme), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	wanted := before + begin + table.String() + end + after
	golden.Equal(t, chart+"/README.md", wanted)
}

// commented is a key of values.yaml with the comment above it.
type commented struct{ key, text string }

// comments reads the keys of a YAML file whose maps are written as blocks.
func comments(content string) (found []commented) {
	keyLine := regexp.MustCompile(`^( *)([A-Za-z]+):( |$)`)
	var path, text []string
	for line := range strings.Lines(content) {
		line = strings.TrimRight(line, "\n")
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "#"); ok {
			text = append(text, strings.TrimSpace(comment))
			continue
		}
		if key := keyLine.FindStringSubmatch(line); key != nil {
			depth := len(key[1]) / 2
			path = append(path[:min(depth, len(path))], key[2])
			found = append(found, commented{strings.Join(path, "."), strings.Join(text, " ")})
		}
		text = nil
	}
	return found
}

// defaultText is a value as the table shows it: those that are long are in values.yaml.
func defaultText(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	if s, ok := value.(string); ok && s != "" {
		return "`" + s + "`"
	}
	if len(data) > 60 {
		return "see `values.yaml`"
	}
	return "`" + string(data) + "`"
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
