package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/tranche-dev/tranche/"

// goType names a type of the repository by its folder.
type goType struct{ folder, name string }

// declared is what a type is, and what its file imports, by the names in the file.
type declared struct {
	expr    ast.Expr
	imports map[string]string
}

// declarations are the types of the repository.
type declarations struct {
	types map[goType]declared
	// texts are types that write their JSON themselves.
	texts map[goType]bool
}

// goTypes reads the types of pkg, api and cmd.
func goTypes(t *testing.T) *declarations {
	t.Helper()
	all := &declarations{types: map[goType]declared{}, texts: map[goType]bool{}}
	for _, root := range []string{"../pkg", "../api", "../cmd"} {
		require.NoError(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err == nil {
				all.add(strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../"), parsed)
			}
			return err
		}))
	}
	return all
}

// add adds the types of a file.
func (d *declarations) add(folder string, file *ast.File) {
	imports := map[string]string{}
	for _, i := range file.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(from)
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = strings.TrimPrefix(from, module)
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					d.types[goType{folder, s.Name.Name}] = declared{s.Type, imports}
				}
			}
		case *ast.FuncDecl:
			if decl.Recv == nil || decl.Name.Name != "MarshalJSON" && decl.Name.Name != "MarshalText" {
				continue
			}
			receiver := decl.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if name, ok := receiver.(*ast.Ident); ok {
				d.texts[goType{folder, name.Name}] = true
			}
		}
	}
}

// hasVersion reports whether a struct embeds TypeMeta.
func (d *declarations) hasVersion(of declared) bool {
	s, ok := of.expr.(*ast.StructType)
	return ok && slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		embedded, ok := f.Type.(*ast.SelectorExpr)
		return ok && len(f.Names) == 0 && embedded.Sel.Name == "TypeMeta"
	})
}

// importsOf are the imports of the files of a folder, by the names in them.
func (d *declarations) importsOf(folder string) map[string]string {
	all := map[string]string{}
	for of, found := range d.types {
		if of.folder == folder {
			maps.Copy(all, found.imports)
		}
	}
	return all
}

// keys are the paths of the keys of a type's JSON that hold no others.
func (d *declarations) keys(t *testing.T, of goType) []string {
	t.Helper()
	require.Contains(t, d.types, of)
	return d.named("", of, nil)
}

func (d *declarations) named(at string, of goType, within []goType) []string {
	known, ok := d.types[of]
	if !ok || d.texts[of] || slices.Contains(within, of) {
		return []string{at}
	}
	return d.expand(at, of.folder, known.expr, known.imports, append(slices.Clone(within), of))
}

// expand returns the keys of an expression of a folder's file.
func (d *declarations) expand(at, folder string, expr ast.Expr, imports map[string]string, within []goType) (found []string) {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return d.expand(at, folder, e.X, imports, within)
	case *ast.ArrayType:
		if item, ok := e.Elt.(*ast.Ident); ok && item.Name == "byte" {
			return []string{at}
		}
		return d.expand(at+"[]", folder, e.Elt, imports, within)
	case *ast.MapType:
		return d.expand(at+"{}", folder, e.Value, imports, within)
	case *ast.Ident:
		return d.named(at, goType{folder, e.Name}, within)
	case *ast.SelectorExpr:
		from, _ := e.X.(*ast.Ident)
		return d.named(at, goType{imports[from.Name], e.Sel.Name}, within)
	case *ast.StructType:
		for _, f := range e.Fields.List {
			found = append(found, d.field(at, folder, f, imports, within)...)
		}
		return found
	}
	return []string{at}
}

// field returns the keys of a struct's field, or of several with one type.
func (d *declarations) field(at, folder string, f *ast.Field, imports map[string]string, within []goType) (found []string) {
	tag := ""
	if f.Tag != nil {
		text, _ := strconv.Unquote(f.Tag.Value)
		tag, _, _ = strings.Cut(reflect.StructTag(text).Get("json"), ",")
	}
	if len(f.Names) == 0 && tag == "" {
		return d.expand(at, folder, f.Type, imports, within)
	}
	names := []string{tag}
	if tag == "" {
		names = nil
		for _, n := range f.Names {
			if n.IsExported() {
				names = append(names, n.Name)
			}
		}
	}
	for _, name := range names {
		if name != "-" {
			found = append(found, d.expand(strings.TrimPrefix(at+"."+name, "."), folder, f.Type, imports, within)...)
		}
	}
	return found
}
