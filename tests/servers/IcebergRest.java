// The REST catalog of Iceberg's own tests, which by itself would listen on all addresses. Arguments: port, warehouse, database.

import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

public class IcebergRest {
    public static void main(String[] given) throws Exception {
        var properties = Map.of(
            "catalog-impl", JdbcCatalog.class.getName(),
            "warehouse", given[1],
            "uri", "jdbc:sqlite:" + given[2],
            "jdbc.schema-version", "V1");
        var catalog = CatalogUtil.buildIcebergCatalog("catalog", properties, new Configuration());
        var servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
        var handler = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
        handler.addServlet(new ServletHolder(servlet), "/*");
        var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(given[0])));
        server.setHandler(handler);
        server.start();
        server.join();
    }
}
