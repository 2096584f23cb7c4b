"""The tools of the Model Context Protocol: one description, served over HTTP by the API and over stdio by the command.

A tool is a few calls of the REST interface. Who carries them is a ``Rest``: the API's own routes in the same process,
or a connection to a deployment. So authorization, tenants, checks and errors are those of REST.
"""
