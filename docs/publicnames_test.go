package docs_test

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/golden"
)

const (
	publicNames = "../api/public-names.txt"
	chartFolder = "../deployments/helm/tranche/"
	// renderedChart is the chart with everything turned on, defaultChart as it is.
	renderedChart, defaultChart = "../deployments/helm/testdata/custom.yaml", "../deployments/helm/testdata/defaults.yaml"
)

// storedFiles are the files that one version of the plugin writes and another one reads, with the types whose
// JSON they are, beside the keys of each file.
var storedFiles = map[string]goType{
	"claims/UID.json":  {"pkg/claim/ledger", "Record"},
	"profile.json":     {"pkg/partition", "journal"},
	"gpus.json":        {"pkg/node/inventory", "rosterFile"},
	"health.json":      {"pkg/node/inventory", "troublesFile"},
	"sharing.json":     {"pkg/share", "stateFile"},
	"reboot.json":      {"pkg/node/follow", "rebootRequest"},
	"mps/ID/spec.json": {"pkg/hardware/mps", "Spec"},
	"amdgpu-is-out":    {"pkg/hardware/kmod", "marker"},
}

// printed returns the kinds that the programs print, with the keys of their JSON: those of the table of
// kubectl-tranche, without which it prints nothing, and the types that have an apiVersion themselves.
func printed(t *testing.T, types *declarations) map[string][]string {
	t.Helper()
	for _, listed := range []string{"GPUNodeStatus", "Rule"} { // below their custom resources
		types.texts[goType{"api/v1beta1", listed}] = true
	}
	found := map[string][]string{}
	add := func(kind, folder string, of ast.Expr, imports map[string]string) {
		keys := []string{"apiVersion", "kind"}
		for _, key := range types.expand("", folder, of, imports, nil) {
			if strings.HasPrefix(key, "[]") {
				key = "items" + key
			}
			if key != "" {
				keys = append(keys, key)
			}
		}
		found[kind] = keys
	}
	const table = "cmd/kubectl-tranche"
	inspect(t, "../"+table, func(n ast.Node) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "kinds" {
			return
		}
		for _, element := range spec.Values[0].(*ast.CompositeLit).Elts {
			kind, value := element.(*ast.KeyValueExpr).Key, element.(*ast.KeyValueExpr).Value
			if pointer, ok := value.(*ast.UnaryExpr); ok {
				value = pointer.X
			}
			name, _ := text(kind)
			add(name, table, value.(*ast.CompositeLit).Type, types.importsOf(table))
		}
	})
	for of, d := range types.types {
		if ast.IsExported(of.name) && !strings.HasPrefix(of.folder, "api/") && types.hasVersion(d) {
			add(of.name, of.folder, d.expr, d.imports)
		}
	}
	require.Contains(t, found, "Cluster")
	require.Contains(t, found, "HardwareReport")
	return found
}

// values are the values that a name can have: constants of a type, or, of api/names, those whose names have a
// prefix. Names that are not here have values that the code does not list.
type values struct{ title, name, folder, constants string }

var listedValues = []values{
	{"Values of attributes", "type", "pkg/gpu", "Type"},
	{"Values of attributes", "vendor", "pkg/gpu", "Vendor"},
	{"Values of attributes", "isolation", "pkg/gpu", "Isolation"},
	{"Values of attributes", "shareUnit", "pkg/gpu", "Basis"},
	{"Values of attributes", "sharingStrategy", "pkg/gpu", "Strategy"},
	{"Values of labels", "tranche.dev/created-from", "api/names", "CreatedFrom"},
	{"Values of labels", "tranche.dev/defragmentation", "api/names", "Value"},
	{"Values of labels", "tranche.dev/request-gpu-resources", "api/names", "Value"},
	{"Resources of nodes", "resource", "api/names", "Resource"},
	{"Values of labels", "tranche.dev/driver-upgrade", "api/names", "DriverUpgrade"},
	{"Values of labels", "tranche.dev/driver-upgrade", "pkg/gpu", "Vendor"},
	{"Values of labels", "tranche.dev/gpu-monitoring", "api/names", "Paused"},
	{"Values of labels", "tranche.dev/translate", "api/names", "Translate"},
	{"Values of taints", "gpu.tranche.dev/unhealthy", "pkg/gpu", "Cause"},
	{"Values of labels of metrics", "cause", "api/names", "Unexplained"},
	{"Values of labels of metrics", "reason", "api/names", "Throttled"},
	{"Values of labels of metrics", "operation", "api/names", "Operation"},
	{"Values of labels of metrics", "phase", "api/names", "Phase"},
	{"Values of labels of metrics", "phase", "pkg/claim/steps", "Op"},
	{"Values of labels of metrics", "result", "api/names", "Outcome"},
	{"Values of labels of metrics", "result", "api/names", "Eviction"},
	{"Values of labels of metrics", "result", "api/v1beta1", "SwitchResult"},
	{"Values of labels of metrics", "state", "api/names", "State"},
	{"Values of labels of metrics", "state", "api/names", "PlanNode"},
	{"Values of labels of metrics", "state", "api/v1beta1", "State"},
	{"Conditions and reasons of devices of ResourceClaims", "condition", "api/names", "ClaimCondition"},
	{"Conditions and reasons of devices of ResourceClaims", "reason", "api/names", "ClaimReason"},
	{"Reasons of refused defragmentations", "reason", "pkg/defrag", "Reason"},
	{"Blockers of nodes in forecasts of plans", "kind", "pkg/rollout", "BlockerKind"},
	{"Values in output", "ClusterSummary states[].state", "pkg/cluster/overview", "State"},
	{"Values in output", "PodExplanation state", "pkg/why", "State"},
	{"Values in output", "PodExplanation nodes[].verdict", "pkg/why/fit", "Verdict"},
	{"Values in output", "ObjectExplanation workload.state", "pkg/why", "WorkloadState"},
	{"Names of ResourceClaimTemplates", "term", "pkg/claimtemplate", "TermKind"},
}

// valueSections are the lines of listedValues by their title.
func valueSections(t *testing.T) map[string][]string {
	t.Helper()
	sections := map[string][]string{}
	for _, v := range listedValues {
		found := constantsOfType(t, v.folder, v.constants)
		if v.folder == "api/names" {
			found = constantsOf(t, v.constants)
		}
		require.NotEmpty(t, found, v)
		for _, value := range found {
			sections[v.title] = append(sections[v.title], v.name+": "+value)
		}
	}
	for title := range sections {
		sections[title] = sorted(sections[title])
	}
	return sections
}

// constantsOfType are the values of the constants of a folder's type.
func constantsOfType(t *testing.T, folder, of string) (found []string) {
	t.Helper()
	inspect(t, "../"+folder, func(n ast.Node) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == of {
			if value, ok := text(spec.Values[0]); ok {
				found = append(found, value)
			} else if shared, ok := spec.Values[0].(*ast.SelectorExpr); ok {
				found = append(found, nameOf(t, shared.Sel.Name))
			}
		}
	})
	return sorted(found)
}

// nameOf is the value of a constant of api/names.
func nameOf(t *testing.T, constant string) (value string) {
	t.Helper()
	inspect(t, "../api/names", func(n ast.Node) {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Names[0].Name == constant {
			value, _ = text(spec.Values[0])
		}
	})
	require.NotEmpty(t, value, constant)
	return value
}

// TestPublicNames: each name that users, their manifests, queries and scripts, or other versions of the
// programs rely on is in one file. Who changes a name changes the file, and reviewers see it.
func TestPublicNames(t *testing.T) {
	var b strings.Builder
	b.WriteString("# The public names of Tranche. They are read from their sources; this file shows what changes.\n" +
		"# To write it: go test ./docs -run '^TestPublicNames$' -update\n")
	section := func(title string, lines []string) {
		require.NotEmpty(t, lines, title)
		fmt.Fprintf(&b, "\n## %s\n", title)
		for _, line := range lines {
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	for _, kind := range customResources(t) {
		section("Custom resource "+kind.title, kind.lines)
	}
	attributes, capacities, counters := published(t)
	section("Attributes of devices", union(attributes, constantsOf(t, "Attribute")))
	section("Capacities of devices", union(capacities, constantsOf(t, "Capacity")))
	section("Counters", counters)
	for _, s := range []struct{ title, prefix string }{
		{"Taints", "Taint"}, {"Labels", "Label"}, {"Annotations", "Annotation"}, {"Conditions", "Condition"},
		{"Reasons of conditions", "Reason"}, {"Reasons of events", "Event"},
	} {
		section(s.title, constantsOf(t, s.prefix))
	}
	section("Metrics and their labels", metricLines(t))
	section("Variables in containers", constantsOf(t, "Env"))
	lists := valueSections(t)
	lists["Names of ResourceClaimTemplates"] = append(lists["Names of ResourceClaimTemplates"],
		matches(t, regexp.MustCompile("amount += regexp.MustCompile\\(`([^`]+)`"), "../pkg/claimtemplate/name.go")...)
	for _, title := range slices.Sorted(maps.Keys(lists)) {
		section(title, lists[title])
	}
	section("Alerts and recorded series", matches(t, regexp.MustCompile(`(?m)^ +- (?:alert|record): (\S+)$`), renderedChart))
	section("DeviceClasses", matches(t, regexp.MustCompile(`(?m)^kind: DeviceClass\nmetadata:\n  name: (\S+)$`), renderedChart, defaultChart, "../deployments/helm/testdata/simulate.yaml"))
	section("Roles for users", matches(t, regexp.MustCompile(`(?m)^  name: (tranche-(?:view|profile-admin|usage|user\S*))$`), defaultChart))
	var schema map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, chartFolder+"values.schema.json")), &schema))
	section("Values of the chart", schemaLines("", schema, false))
	section("Commands and flags of kubectl tranche", strings.Split(strings.TrimSpace(read(t, "../cmd/kubectl-tranche/testdata/commands.txt")), "\n"))
	var codes []string
	for _, row := range exitCodes(t) {
		codes = append(codes, strings.ReplaceAll(strings.Join(row, ": "), "`", ""))
	}
	section("Exit codes of kubectl tranche", codes)
	types := goTypes(t)
	section("Data of devices in the status of ResourceClaims", types.keys(t, goType{"pkg/node/telemetry", "DeviceFacts"}))
	kinds := printed(t, types)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		section("Output, kind "+kind, kinds[kind])
	}
	for _, program := range []struct {
		name    string
		folders []string
	}{
		{"tranche-kubelet-plugin", []string{"../cmd/tranche-kubelet-plugin", "../cmd/internal"}},
		{"tranche-controller", []string{"../cmd/tranche-controller", "../cmd/internal/daemon"}},
		{"tranche-web", []string{"../cmd/tranche-web", "../cmd/internal/daemon"}},
	} {
		var flags []string
		for _, row := range flagsOf(t, program.folders...) {
			flags = append(flags, strings.Trim(row[0], "`"))
		}
		section("Flags of "+program.name, flags)
	}
	for _, folder := range foldersOfFormats(t) {
		require.Contains(t, foldersOf(storedFiles), folder, "storedFiles lacks a file")
	}
	for _, file := range slices.Sorted(maps.Keys(storedFiles)) {
		keys := types.keys(t, storedFiles[file])
		section("File of the plugin on its node: "+file, union(types.keys(t, goType{"pkg/durable", "header"}), keys))
	}
	golden.Equal(t, publicNames, b.String())
}

// exitCodes are the exit codes of kubectl tranche, from 0, and what they mean.
func exitCodes(t *testing.T) (rows [][]string) {
	t.Helper()
	inspect(t, "../cmd/kubectl-tranche", func(n ast.Node) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "exitCodes" {
			return
		}
		for i, element := range spec.Values[0].(*ast.CompositeLit).Elts {
			rows = append(rows, []string{fmt.Sprintf("`%d`", i), words(t, element.(*ast.CompositeLit).Elts[1])})
		}
	})
	require.NotEmpty(t, rows)
	return rows
}

// foldersOf are the folders of types.
func foldersOf(types map[string]goType) (folders []string) {
	for _, of := range types {
		folders = append(folders, of.folder)
	}
	return folders
}

// foldersOfFormats are the folders that have a format of stored files.
func foldersOfFormats(t *testing.T) (folders []string) {
	t.Helper()
	all, err := filepath.Glob("../pkg/*")
	require.NoError(t, err)
	deeper, err := filepath.Glob("../pkg/*/*")
	require.NoError(t, err)
	for _, folder := range append(all, deeper...) {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") && strings.Contains(read(t, file), "= durable.Format{") {
				folders = append(folders, strings.TrimPrefix(folder, "../"))
			}
		}
	}
	require.NotEmpty(t, folders)
	return folders
}

// union returns the sorted names of two lists.
func union(a, b []string) []string { return sorted(slices.Concat(a, b)) }

// constantsOf are the values of the constants of api/names whose names have a prefix.
func constantsOf(t *testing.T, prefix string) (found []string) {
	t.Helper()
	name := regexp.MustCompile("^" + prefix + "[A-Z]")
	inspect(t, "../api/names", func(n ast.Node) {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 && name.MatchString(spec.Names[0].Name) {
			value, isText := text(spec.Values[0])
			require.True(t, isText, spec.Names[0].Name)
			found = append(found, value)
		}
	})
	return sorted(found)
}

// metricLines are the metrics with their labels. Those of the plugin have its node.
func metricLines(t *testing.T) (lines []string) {
	t.Helper()
	for _, row := range metrics(t) {
		labels := row[1]
		if !controllerMetric.MatchString(row[0]) {
			labels = strings.TrimSuffix("node, "+labels, ", ")
		}
		lines = append(lines, fmt.Sprintf("%s {%s}", strings.Trim(row[0], "`"), labels))
	}
	return lines
}

// matches are what a group of a pattern finds in files.
func matches(t *testing.T, pattern *regexp.Regexp, files ...string) (found []string) {
	t.Helper()
	for _, file := range files {
		for _, m := range pattern.FindAllStringSubmatch(read(t, file), -1) {
			found = append(found, m[1])
		}
	}
	return sorted(found)
}

// customResource is a custom resource with its fields.
type customResource struct {
	title string
	lines []string
}

// customResources reads the CustomResourceDefinitions.
func customResources(t *testing.T) (all []customResource) {
	t.Helper()
	files, err := filepath.Glob(chartFolder + "files/crds/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var crd struct {
			Spec struct {
				Group string
				Scope string
				Names struct {
					Kind, Plural string
					ShortNames   []string
				}
				Versions []struct {
					Name                     string
					AdditionalPrinterColumns []struct{ Name string }
					Schema                   struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(content, &crd))
		n := crd.Spec.Names
		for _, v := range crd.Spec.Versions {
			lines := []string{
				fmt.Sprintf("resource %s.%s/%s %s", n.Plural, crd.Spec.Group, v.Name, crd.Spec.Scope),
				"short names: " + strings.Join(n.ShortNames, ", "),
			}
			var columns []string
			for _, c := range v.AdditionalPrinterColumns {
				columns = append(columns, c.Name)
			}
			lines = append(lines, "columns: "+strings.Join(columns, ", "))
			for _, part := range []string{"spec", "status"} {
				if node, ok := v.Schema.OpenAPIV3Schema["properties"].(map[string]any)[part].(map[string]any); ok {
					lines = append(lines, schemaLines(part, node, true)...)
				}
			}
			all = append(all, customResource{n.Kind, lines})
		}
	}
	return all
}

// schemaLines are the paths of the keys of a schema that hold no others, with type and allowed values. Of
// lists that are values of the chart, the items are those of Kubernetes.
func schemaLines(path string, node map[string]any, items bool) (lines []string) {
	properties, _ := node["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		lines = append(lines, schemaLines(strings.TrimPrefix(path+"."+key, "."), properties[key].(map[string]any), items)...)
	}
	if item, ok := node["items"].(map[string]any); ok && items {
		lines = append(lines, schemaLines(path+"[]", item, items)...)
	}
	if values, ok := node["additionalProperties"].(map[string]any); ok && items {
		lines = append(lines, schemaLines(path+"{}", values, items)...)
	}
	if len(lines) > 0 {
		return lines
	}
	kind := "any"
	switch {
	case node["type"] != nil:
		kind = fmt.Sprint(node["type"])
	case node["x-kubernetes-int-or-string"] == true:
		kind = "integer or string"
	}
	if enum, ok := node["enum"].([]any); ok {
		var values []string
		for _, v := range enum {
			values = append(values, fmt.Sprint(v))
		}
		kind += ": " + strings.Join(values, ", ")
	}
	return []string{path + " " + kind}
}
