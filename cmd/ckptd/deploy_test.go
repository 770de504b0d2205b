package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/ckptd/ckptd/internal/access"
)

// TestConfigurationExample checks deploy/ckptd.toml: it is valid as it is and with all that it has
// commented out, has every flag of ckptd serve, and says of those commented out what their default
// is.
func TestConfigurationExample(t *testing.T) {
	text := document(t, "deploy/ckptd.toml")
	defaults := serveFlags(t)
	commented := regexp.MustCompile(`(?m)^# ([a-z-]+ *= .*|\[.*\])$`)
	all := parseConfig(t, commented.ReplaceAllString(text, "$1"))
	chosen := parseConfig(t, text)
	defaults.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains([]string{"help", "config", "json", "namespace", "server", "token-file", "tls-ca", "tls-cert", "tls-key"}, f.Name) &&
			!slices.Contains(all.keys, f.Name) {
			t.Errorf("deploy/ckptd.toml leaves out %s", f.Name)
		}
		if value := all.flags.Lookup(f.Name).Value.String(); f.DefValue != "" && !slices.Contains(chosen.keys, f.Name) && value != f.DefValue {
			t.Errorf("deploy/ckptd.toml says that the default of %s is %s, it is %s", f.Name, value, f.DefValue)
		}
	})
	if err := grantsOf(&chosen.access); err != nil {
		t.Errorf("deploy/ckptd.toml: %v", err)
	}
	if o := &all.access; len(o.Peers) < 2 || len(o.Certificates) == 0 || o.JWT == nil {
		t.Errorf("deploy/ckptd.toml leaves out a table: %+v", o)
	} else if err := grantsOf(o); err != nil {
		t.Errorf("deploy/ckptd.toml: %v", err)
	}
	_, jwt, _ := strings.Cut(text, "[jwt]")
	for _, name := range tomlMembers(t, all.access.JWT) {
		if !strings.Contains(jwt, "\n# "+name+" = ") {
			t.Errorf("deploy/ckptd.toml leaves out %s of jwt", name)
		}
	}
}

// config is a configuration that was read.
type config struct {
	keys   []string
	flags  *pflag.FlagSet
	access access.Options
}

func parseConfig(t *testing.T, text string) config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ckptd.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config{flags: serveFlags(t)}
	if err := readConfig(path, c.flags, &c.access); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var keys map[string]any
	if err := toml.Unmarshal([]byte(text), &keys); err != nil {
		t.Fatal(err)
	}
	c.keys = slices.Sorted(maps.Keys(keys))
	return c
}

// serveFlags returns the flags of ckptd serve.
func serveFlags(t *testing.T) *pflag.FlagSet {
	t.Helper()
	cmd, _, err := newApp().root().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	cmd.InheritedFlags() // which adds them to Flags
	return cmd.Flags()
}

func grantsOf(o *access.Options) error {
	var all []access.Grant
	for _, p := range o.Peers {
		all = append(all, p.Grants...)
	}
	for _, c := range o.Certificates {
		all = append(all, c.Grants...)
	}
	for _, g := range all {
		if err := g.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// tomlMembers returns the names of the members of a table.
func tomlMembers(t *testing.T, table any) []string {
	t.Helper()
	text, err := toml.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := toml.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(members))
}

// parseCommand reads a command line without running it.
func parseCommand(args []string) error {
	cmd, rest, err := newApp().root().Find(args)
	if err != nil {
		return err
	}
	if cmd.Run == nil && cmd.RunE == nil || !cmd.HasParent() {
		return usagef("%q names no command", strings.Join(args, " "))
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if helps, _ := cmd.Flags().GetBool("help"); helps || cmd.Args == nil {
		return nil
	}
	return cmd.Args(cmd, cmd.Flags().Args())
}

// TestUnits checks the units of systemd as far as that goes without it.
func TestUnits(t *testing.T) {
	service, socket := unit(t, "deploy/ckptd.service"), unit(t, "deploy/ckptd.socket")
	program, args, _ := strings.Cut(service["Service"]["ExecStart"][0], " ")
	if program != "/usr/local/bin/ckptd" {
		t.Errorf("ExecStart runs %s", program)
	}
	if err := parseCommand(strings.Fields(args)); err != nil {
		t.Errorf("ExecStart: %v", err)
	}
	listed := map[string]bool{}
	for _, e := range exitCodes {
		listed[strconv.Itoa(e.code)] = true
	}
	for _, code := range strings.Fields(service["Service"]["RestartPreventExitStatus"][0]) {
		if !listed[code] {
			t.Errorf("RestartPreventExitStatus: there is no exit code %s", code)
		}
	}
	drain, err := serveFlags(t).GetDuration("drain")
	if err != nil {
		t.Fatal(err)
	}
	if stop, err := strconv.Atoi(service["Service"]["TimeoutStopSec"][0]); err != nil || float64(stop) <= drain.Seconds() {
		t.Errorf("TimeoutStopSec is %d, --drain is %v", stop, drain)
	}
	chosen := parseConfig(t, document(t, "deploy/ckptd.toml"))
	path := chosen.flags.Lookup("socket").Value.String()
	if listens := socket["Socket"]["ListenStream"]; !slices.Contains(listens, path) || !slices.Contains(listens, "127.0.0.1:7420") {
		t.Errorf("ckptd.socket listens on %q", listens)
	}
	if mode := socket["Socket"]["SocketMode"][0]; mode != chosen.flags.Lookup("socket-mode").Value.String() {
		t.Errorf("ckptd.socket makes a socket with mode %s", mode)
	}
	if rotated := chosen.flags.Lookup("audit-log").Value.String(); !strings.Contains(document(t, "deploy/ckptd.logrotate"), "\n"+rotated+" {\n") {
		t.Errorf("ckptd.logrotate does not rotate %s", rotated)
	}
}

// unit reads a file of systemd: the values of each key of each section.
func unit(t *testing.T, path string) map[string]map[string][]string {
	t.Helper()
	sections, at := map[string]map[string][]string{}, ""
	for _, line := range strings.Split(document(t, path), "\n") {
		key, value, assigns := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			at = strings.Trim(line, "[]")
			sections[at] = map[string][]string{}
		case assigns && at != "" && regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(key):
			sections[at][key] = append(sections[at][key], value)
		default:
			t.Errorf("%s: what is %q?", path, line)
		}
	}
	return sections
}

// TestDockerfile checks that what the image sets are flags of ckptd serve, and that the folders it
// needs are there.
func TestDockerfile(t *testing.T) {
	text := document(t, "deploy/Dockerfile")
	known := serveFlags(t)
	variables := map[string]bool{}
	known.VisitAll(func(f *pflag.Flag) { variables[envName(f.Name)] = true })
	set := regexp.MustCompile(`(CKPTD_[A-Z_]+)=(\S+)`).FindAllStringSubmatch(text, -1)
	if len(set) == 0 {
		t.Error("the Dockerfile sets no variable")
	}
	for _, m := range set {
		if !variables[m[1]] {
			t.Errorf("%s is no flag of ckptd serve", m[1])
		}
		folder := filepath.ToSlash(filepath.Dir(m[2]))
		if strings.HasPrefix(m[2], "/") && !strings.Contains(text, " "+folder+"\n") {
			t.Errorf("%s: the image has no folder %s", m[1], folder)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)CMD (\[.*\])$`).FindAllStringSubmatch(text, -1) {
		var args []string
		if err := yaml.Unmarshal([]byte(m[1]), &args); err != nil { // a list in JSON is one in YAML
			t.Fatalf("%s: %v", m[1], err)
		}
		if args[0] == "/usr/local/bin/ckptd" {
			args = args[1:]
		}
		if err := parseCommand(args); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}

// manifest is what is checked of an object of Kubernetes.
type manifest struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template struct {
			Spec struct {
				InitContainers []container `yaml:"initContainers"`
				Containers     []container
				Volumes        []struct{ Name string }
			}
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

type container struct {
	Name                                        string
	Args                                        []string
	Env                                         []struct{ Name string }
	StartupProbe, ReadinessProbe, LivenessProbe struct{ Exec struct{ Command []string } }
	VolumeMounts                                []struct{ Name, MountPath string } `yaml:"volumeMounts"`
}

// TestKubernetes checks that the example is YAML, that its command lines and its configuration are
// valid, and that its volumes exist.
func TestKubernetes(t *testing.T) {
	kinds := map[string]manifest{}
	for d := yaml.NewDecoder(strings.NewReader(document(t, "deploy/kubernetes.yaml"))); ; {
		var m manifest
		if err := d.Decode(&m); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kinds[m.Kind] = m
	}
	if c := parseConfig(t, kinds["ConfigMap"].Data["ckptd.toml"]); len(c.access.Peers) == 0 {
		t.Error("the configuration knows no peer")
	} else if err := grantsOf(&c.access); err != nil {
		t.Errorf("the configuration: %v", err)
	}
	set := kinds["StatefulSet"]
	pod := set.Spec.Template.Spec
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, v := range set.Spec.VolumeClaimTemplates {
		volumes[v.Metadata.Name] = true
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("container %s mounts %s, which does not exist", c.Name, m.Name)
			}
		}
	}
	if len(pod.InitContainers) != 1 || len(pod.Containers) != 1 {
		t.Fatalf("a sidecar and an agent are wanted, there are %d and %d", len(pod.InitContainers), len(pod.Containers))
	}
	if err := parseCommand(pod.InitContainers[0].Args); err != nil {
		t.Errorf("the sidecar: %v", err)
	}
}
