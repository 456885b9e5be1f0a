// AJV, as the clients of this world have it: draft-07 as the TypeScript SDK 1.x asks it and as strict hosts do, and the
// two drafts after it. A line in: {"schema", "values", "is_output"}; a line out: a list of what failed, [] if nothing.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.argv[2] + "/package.json");
const { AjvJsonSchemaValidator } = await import(require.resolve("@modelcontextprotocol/sdk/validation/ajv"));
const addFormats = require("ajv-formats").default;
const drafts = { "draft-07": require("ajv").default, "2019-09": require("ajv/dist/2019").default, "2020-12": require("ajv/dist/2020").default };

function ajv(draft, strict) {
  const validator = new drafts[draft]({ strict, allErrors: true, validateFormats: true, logger: false });
  addFormats(validator);
  validator.addKeyword("x-mcp-header"); // the specification's own: who is strict knows it
  return validator;
}

const judges = Object.keys(drafts).flatMap((draft) =>
  [false, true].map((strict) => [`AJV ${draft}, strict ${strict}`, ajv(draft, strict)]),
);
const sdk = new AjvJsonSchemaValidator();

function judge({ schema, values, is_output }) {
  const failed = [];
  for (const [name, judge] of judges) {
    try {
      const validate = judge.compile(schema);
      // An input is generous: its formats are for those who write arguments.
      for (const value of is_output ? values : []) {
        if (!validate(value)) failed.push(`${name}: ${JSON.stringify(value)}: ${JSON.stringify(validate.errors)}`);
      }
    } catch (error) {
      failed.push(`${name}: ${error.message}`);
    }
  }
  if (is_output) {
    try {
      const validate = sdk.getValidator(schema);
      for (const value of values) {
        const found = validate(value);
        if (!found.valid) failed.push(`TypeScript SDK: ${JSON.stringify(value)}: ${found.errorMessage}`);
      }
    } catch (error) {
      failed.push(`TypeScript SDK: ${error.message}`);
    }
  }
  return failed;
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(judge(JSON.parse(line))) + "\n");
}
