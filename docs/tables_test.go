package docs_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/test/golden"
)

// generated compares the part of a page between <!-- generated:NAME --> and the next
// <!-- end -->, or writes it.
func generated(t *testing.T, page, name, content string) {
	t.Helper()
	begin, end := "<!-- generated:"+name+" -->\n", "<!-- end -->"
	text := read(t, page)
	before, rest, found := strings.Cut(text, begin)
	require.True(t, found, "%s has no %s", page, begin)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	wanted := before + begin + "\n" + strings.TrimSpace(content) + "\n\n" + end + after
	golden.Equal(t, page, wanted)
}

// table is rows of Markdown, whose first column is code.
func table(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	line(slices.Repeat([]string{"---"}, len(header)))
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// definitions is rows as a list: the first cell, those between in brackets, and the last one.
func definitions(rows [][]string) string {
	var b strings.Builder
	for _, row := range rows {
		last := len(row) - 1
		about := strings.ReplaceAll(strings.Join(row[1:last], ", "), ", on the ", ", ")
		if about != "" {
			about = " (" + about + ")"
		}
		verb := ":"
		if marks.MatchString(row[last]) {
			verb = "" // a sentence whose subject is the name
		}
		fmt.Fprintf(&b, "- %s%s%s %s\n", row[0], about, verb, row[last])
	}
	return b.String()
}

var marks = regexp.MustCompile(`^(is|marks) `)

// TestTablesOfConstants: the names that programs share are constants of api/names,
// and their comments are the descriptions.
func TestTablesOfConstants(t *testing.T) {
	const page = "reference/cluster-objects.md"
	with := func(prefix string) (rows [][]string) {
		for _, c := range contract(t) {
			if strings.HasPrefix(c.name, prefix) {
				row := []string{"`" + c.value + "`", c.meaning}
				if c.about != "" {
					row = slices.Insert(row, 1, c.about)
				}
				rows = append(rows, row)
			}
		}
		require.NotEmpty(t, rows, prefix)
		slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(strings.Trim(a[0], "`"), strings.Trim(b[0], "`")) })
		return rows
	}
	generated(t, page, "labels", definitions(append(with("Label"), with("Annotation")...)))
	generated(t, page, "resources", definitions(with("Resource")))
	generated(t, page, "taints", definitions(with("Taint")))
	generated(t, page, "conditions", definitions(with("Condition")))
	generated(t, page, "events", definitions(with("Event")))
	generated(t, page, "reasons", definitions(with("Reason")))
}

// constant is a name that programs share, and its comment: "Name (about): meaning.".
type constant struct{ name, value, about, meaning string }

// contract are the names that programs share: of taints, labels, annotations,
// conditions, reasons, events and metrics.
func contract(t *testing.T) (all []constant) {
	t.Helper()
	prefix := regexp.MustCompile(`^(Taint|Label|Annotation|Condition|Reason|Event|Metric|Resource)[A-Z]`)
	said := regexp.MustCompile(`(?s)^\w+(?: \(([^)]*)\))?:? (.*)$`)
	inspect(t, "../api/names", func(n ast.Node) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !prefix.MatchString(spec.Names[0].Name) {
			return
		}
		name := spec.Names[0].Name
		value, ok := text(spec.Values[0])
		require.True(t, ok, name)
		require.NotNil(t, spec.Doc, "%s has no comment", name)
		words := said.FindStringSubmatch(strings.Join(strings.Fields(spec.Doc.Text()), " "))
		require.NotNil(t, words, name)
		all = append(all, constant{name: name, value: value, about: words[1], meaning: strings.TrimSuffix(words[2], ".")})
	})
	return all
}

// TestNamesOfTheContractAreConstants: no program spells a name that it shares, and the
// chart no other ones. Reasons and conditions of one word are words of other things, too.
func TestNamesOfTheContractAreConstants(t *testing.T) {
	word := regexp.MustCompile(`^[A-Z][a-z]+$`)
	names := map[string]string{}
	for _, c := range contract(t) {
		if !word.MatchString(c.value) {
			names[c.value] = c.name
		}
	}
	for _, folder := range []string{"../pkg", "../cmd"} {
		inspect(t, folder, func(n ast.Node) {
			s, _ := text(n)
			assert.Empty(t, names[s], "%q is the constant of this name", s)
		})
	}
	// The chart cannot use the constants; what it names is one.
	name := regexp.MustCompile(`\b(gpu\.)?tranche\.dev/[a-z-]+\b`)
	for _, pattern := range []string{"values.yaml", "templates/*"} {
		files, err := filepath.Glob("../deployments/helm/tranche/" + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			for _, found := range name.FindAllString(read(t, file), -1) {
				assert.Contains(t, names, found, file)
			}
		}
	}
}

// TestNamesOfTheContractAreUsed: nobody documents a name that no program writes or reads,
// and events have the type that their comment says.
func TestNamesOfTheContractAreUsed(t *testing.T) {
	writers := map[string]string{"warn": "Warning", "warnPod": "Warning", "lastWords": "Warning", "note": "Normal"}
	used, types := map[string]bool{}, map[string]string{}
	for _, folder := range []string{"../pkg", "../cmd"} {
		inspect(t, folder, func(n ast.Node) {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if from, ok := n.X.(*ast.Ident); ok && from.Name == "names" {
					used[n.Sel.Name] = true
				}
			case *ast.CallExpr:
				writer, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || writers[writer.Sel.Name] == "" {
					return
				}
				for _, argument := range n.Args {
					if reason, ok := argument.(*ast.SelectorExpr); ok {
						types[reason.Sel.Name] = writers[writer.Sel.Name]
					}
				}
			}
		})
	}
	// The API server runs policies of the chart.
	policy := read(t, "../deployments/helm/tranche/templates/podaffinity.yaml")
	for _, c := range contract(t) {
		assert.True(t, used[c.name] || strings.Contains(policy, `"`+c.value+`"`), "no program uses names.%s", c.name)
		if wanted := types[c.name]; strings.HasPrefix(c.name, "Event") && wanted != "" {
			assert.Equal(t, wanted, strings.Split(c.about, ",")[0], c.name)
		}
	}
}

// TestTableOfExitCodes: what the exit codes of kubectl tranche mean, as its help says.
func TestTableOfExitCodes(t *testing.T) {
	generated(t, "reference/commands.md", "exit-codes", definitions(exitCodes(t)))
}

// flagsOf are the flags that a program defines: the second and the last argument of
// flags.StringVar and its like, and the entries of lists of names and usages.
func flagsOf(t *testing.T, folders ...string) (rows [][]string) {
	t.Helper()
	define := regexp.MustCompile(`VarP?$`)
	name := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	usages := map[string]string{}
	add := func(flag, usage string) {
		// A flag of several subcommands has one row, with all that they say.
		kind, what, found := strings.Cut(usage, ": ")
		switch before := usages[flag]; {
		case before == "":
			usages[flag] = usage
		case found && strings.HasPrefix(before, kind+": ") && !strings.Contains(before, what):
			usages[flag] += " / " + what
		case !strings.Contains(before, what) && !strings.Contains(before, usage):
			usages[flag] += "; or " + usage
		}
	}
	look := func(n ast.Node) {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "addOutput" {
				var formats []string
				for _, arg := range n.Args[2:] {
					formats = append(formats, words(t, arg))
				}
				last := len(formats) - 1
				add("output", "output format: "+strings.TrimPrefix(strings.Join(formats[:last], ", ")+" or "+formats[last], " or "))
			}
			selector, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || len(n.Args) < 3 || !define.MatchString(selector.Sel.Name) {
				return
			}
			if flag, ok := text(n.Args[1]); ok {
				add(flag, words(t, n.Args[len(n.Args)-1]))
			}
		case *ast.CompositeLit:
			if len(n.Elts) < 3 {
				return
			}
			flag, ok := text(n.Elts[0])
			if usage, isText := text(n.Elts[1]); ok && isText && name.MatchString(flag) && strings.Contains(usage, " ") {
				add(flag, usage)
			}
		}
	}
	for _, folder := range folders {
		if _, err := os.Stat(folder); err == nil {
			inspect(t, folder, look)
		}
	}
	require.NotEmpty(t, usages)
	for flag, usage := range usages {
		rows = append(rows, []string{"`--" + flag + "`", strings.ReplaceAll(usage, "|", "\\|")})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return rows
}

// words is a text that is put together of literals and constants of the project.
func words(t *testing.T, n ast.Expr) string {
	t.Helper()
	if s, ok := text(n); ok {
		return s
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return words(t, n.X) + words(t, n.Y)
	case *ast.SelectorExpr:
		return named(t, n.Sel.Name)
	}
	require.Fail(t, "a usage that is not put together of texts")
	return ""
}

// named is the value of a string constant, also of one that is another's.
func named(t *testing.T, name string) (found string) {
	t.Helper()
	for _, folder := range []string{"../api", "../pkg"} {
		inspect(t, folder, func(n ast.Node) {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || spec.Names[0].Name != name {
				return
			}
			if s, ok := text(spec.Values[0]); ok {
				found = s
			}
		})
	}
	require.NotEmpty(t, found, name)
	return found
}

// controllerMetric finds the metrics of the controller.
var controllerMetric = regexp.MustCompile("^`tranche_(switch|unplanned|defragmentation|gpu_node|plan|pending)")

// TestTablesOfMetrics: names, labels and help texts of all metrics of the project.
func TestTablesOfMetrics(t *testing.T) {
	var ofPlugin, ofController, ofUsage [][]string
	measured := map[string]telemetry.Definition{}
	for _, d := range telemetry.Definitions() {
		measured["`"+d.Name+"`"] = d
	}
	for _, row := range metrics(t) {
		if d, ok := measured[row[0]]; ok {
			dcgm := ""
			if d.DCGM != "" {
				dcgm = "`" + d.DCGM + "`"
			}
			ofUsage = append(ofUsage, []string{row[0], dcgm, row[2]})
		} else if controllerMetric.MatchString(row[0]) {
			ofController = append(ofController, row)
		} else {
			ofPlugin = append(ofPlugin, row)
		}
	}
	require.Len(t, ofUsage, len(measured))
	generated(t, "reference/metrics.md", "plugin-metrics", definitions(ofPlugin))
	generated(t, "reference/metrics.md", "controller-metrics", definitions(ofController))
	generated(t, "reference/metrics.md", "usage-metrics", definitions(ofUsage))
}

// metrics are those that calls of prometheus' constructors make.
func metrics(t *testing.T) (rows [][]string) {
	t.Helper()
	values, meanings := map[string]string{}, map[string]string{}
	for _, c := range contract(t) {
		if strings.HasPrefix(c.name, "Metric") {
			values[c.name], meanings[c.value] = c.value, c.meaning
		}
	}
	lists := map[string][]string{} // variables that are lists of labels
	inspect(t, "../pkg", func(n ast.Node) {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 && strings.HasSuffix(spec.Names[0].Name, "Labels") {
			lists[spec.Names[0].Name] = texts(spec.Values[0], nil)
		}
	})
	inspect(t, "../pkg", func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return
		}
		var found []string
		for _, argument := range call.Args[:min(3, len(call.Args))] {
			if options, ok := argument.(*ast.CompositeLit); ok && option(options, "Name", values) != "" {
				found = append(found, option(options, "Name", values), option(options, "Help", values))
			}
		}
		labels := []string{}
		switch {
		case len(found) == 2 && len(call.Args) > 1: // options, then labels
			labels = texts(call.Args[1], lists)
		case len(found) == 0 && len(call.Args) >= 4: // NewDesc, or a function that calls it
			help, _ := text(call.Args[1])
			found, labels = []string{constantText(call.Args[0], values), help}, texts(call.Args[2], lists)
		}
		if len(found) == 2 && meanings[found[0]] != "" {
			meaning := strings.TrimSuffix(found[1], ".")
			assert.Equal(t, meanings[found[0]], meaning, "the comment of the constant of %s, and the help text", found[0])
			rows = append(rows, []string{"`" + found[0] + "`", strings.Join(labels, ", "), meaning})
		}
	})
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	require.Len(t, rows, len(meanings), "each name of a metric is in the table")
	return rows
}

// option is the text of a literal's key.
func option(literal *ast.CompositeLit, key string, values map[string]string) (found string) {
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if name, ok := pair.Key.(*ast.Ident); ok && name.Name == key {
				found = constantText(pair.Value, values)
			}
		}
	}
	return found
}

// constantText is a text, or the value of a constant of another package.
func constantText(n ast.Expr, values map[string]string) string {
	if selector, ok := n.(*ast.SelectorExpr); ok {
		return values[selector.Sel.Name]
	}
	s, _ := text(n)
	return s
}

// texts are the texts in an expression, those of the lists that it names included.
func texts(n ast.Node, lists map[string][]string) (found []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
			value, _ := text(s)
			found = append(found, value)
		}
		if name, ok := n.(*ast.Ident); ok {
			found = append(found, lists[name.Name]...)
		}
		return true
	})
	return found
}

// TestContributingNamesThePackages: the table of packages has each folder of pkg, and
// nothing that is not there.
func TestContributingNamesThePackages(t *testing.T) {
	var inPage []string
	for _, name := range firstColumn(t, "../CONTRIBUTING.md", "Packages") {
		require.DirExists(t, "../"+name)
		if strings.HasPrefix(name, "pkg/") {
			inPage = append(inPage, strings.Split(name, "/")[1])
		}
	}
	folders, err := os.ReadDir("../pkg")
	require.NoError(t, err)
	for _, folder := range folders {
		if folder.IsDir() {
			assert.Contains(t, inPage, folder.Name(), "CONTRIBUTING.md, Packages")
		}
	}
}

// TestDocumentationStaysShort: who adds a page says something else shorter.
func TestDocumentationStaysShort(t *testing.T) {
	words := 0
	for _, pattern := range []string{"../README.md", "*.md", "*/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, page := range found {
			if filepath.Base(page) == "api.md" {
				continue // It is made of the definitions.
			}
			words += len(strings.Fields(read(t, page)))
		}
	}
	assert.LessOrEqual(t, words, 30000, "words in README.md and docs")
}
